"""Who may ask: tokens, read from the ledger again and again, and a limit on requests for each analyst."""

import hmac
import math
import threading
import time
from pathlib import Path

from dpcore.errors import DpflowError
from dpcore.ledger import Ledger, open_ledger
from dpcore.places import places_of_spec
from dpcore.private_log import record
from dpcore.service.problems import LATER, Refused
from dpcore.session.analysts import hash_of

POLL_SECONDS = 1.0
"""How often the tokens are read again. A removed token works for this long, but buys nothing: the ledger refuses the charge."""

STALE_SECONDS = 15.0
"""For how long tokens are accepted while the ledger cannot be read."""

SCHEME = "Bearer "


class Door:
    """Lets in analysts of one session by their tokens.

    Args:
        spec: The spec's path.
        session: The session's id.
        rate: How many requests an analyst may send, per second on average; ten seconds' worth at once.
    """

    def __init__(self, spec: Path, session: str, *, rate: float) -> None:
        self._spec = spec
        self._session = session
        self._rate = rate
        self._tokens: dict[str, str] = {}
        self._read_at = -math.inf
        self._buckets: dict[str, tuple[float, float]] = {}
        self._closing = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="tokens", daemon=True)

    def open(self) -> None:
        """Read the tokens, and go on reading them."""
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        """Stop reading the tokens."""
        self._closing.set()
        self._thread.join()

    def admit(self, authorization: str | None) -> str:
        """Return the analyst whose token a request has. All tokens are compared, each in constant time.

        Raises:
            Refused: If the token is missing or unknown, the ledger cannot be read, or the analyst sends too many requests.
        """
        if time.monotonic() - self._read_at > STALE_SECONDS:
            reason = "the ledger cannot be read, so tokens cannot be checked; try again later"
            raise Refused(503, "ledger", reason, headers=LATER)
        header = authorization or ""
        sent = hash_of(header.removeprefix(SCHEME))
        analysts = [name for name, token in self._tokens.items() if hmac.compare_digest(token, sent)]
        if not (header.startswith(SCHEME) and analysts):
            reason = (
                "send the header `Authorization: Bearer TOKEN`, with the token that `dpflow analyst add` has printed"
            )
            raise Refused(401, "token", reason, headers={"WWW-Authenticate": "Bearer"})
        self._count(analysts[0])
        return analysts[0]

    def _count(self, analyst: str) -> None:
        """Count a request. An analyst's bucket holds ten seconds' worth of requests, and is refilled steadily."""
        now, most = time.monotonic(), max(1.0, 10 * self._rate)
        left, before = self._buckets.get(analyst, (most, now))
        left = min(most, left + (now - before) * self._rate)
        self._buckets[analyst] = max(0.0, left - 1), now
        if left < 1:
            seconds = math.ceil((1 - left) / self._rate)
            reason = f"too many requests; wait {seconds} s, and send at most {self._rate:g} a second"
            raise Refused(429, "rate", reason, headers={"Retry-After": str(seconds)})

    def _poll(self) -> None:
        while not self._closing.is_set():
            try:
                with open_ledger(places=places_of_spec(self._spec)) as ledger:
                    while not self._closing.is_set():
                        self._read(ledger)
                        self._wait()
            except DpflowError:  # the last tokens stay valid for a while
                self._wait()
            except Exception as error:  # noqa: BLE001  this thread must go on, and its errors may quote an address with a password
                record(error, where="dpflow serve-answers")
                self._wait()

    def _wait(self) -> None:
        self._ready.set()
        self._closing.wait(POLL_SECONDS)

    def _read(self, ledger: Ledger) -> None:
        shares = ledger.shares(self._session).values()
        self._tokens = {share.analyst: share.token for share in shares if share.token is not None}
        self._read_at = time.monotonic()
