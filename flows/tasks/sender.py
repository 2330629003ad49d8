"""What is told of a run, its steps and its lines, on the way to the Prefect server: collected, and sent about once a second."""

import contextvars
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.context import FlowRunContext

from dpcore import private_log as stewardlog

EVERY_SECONDS = 1.0
AT_ONCE = 500
MOST_WAITING = 20_000
END_SECONDS = 5.0

Item = Mapping[str, Any]


class To(StrEnum):
    """Where the server takes many items at once."""

    EVENTS = "/events"
    LOG = "/logs/"


class Sender:
    """Sends from a thread of its own, so that a run waits for nothing but the end of it, and for that not long.

    Prefect's own way is a message for each event, which costs the run five times as much. A server that does not answer is told
    later; what it has missed by the end of the run is lost, and with it only what the UI would have shown.
    """

    def __init__(self, client: SyncPrefectClient) -> None:
        self._client = client
        self._waiting: dict[To, list[Item]] = {to: [] for to in To}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._failed = False
        # In this context, because Prefect's settings are in it.
        work = contextvars.copy_context().run
        self._thread = threading.Thread(target=work, args=(self._work,), name="dpflow-sender", daemon=True)
        self._thread.start()

    def send(self, to: To, item: Item) -> None:
        """Take an item to be sent soon."""
        with self._lock:
            if len(self._waiting[to]) < MOST_WAITING:
                self._waiting[to].append(item)

    def close(self) -> None:
        """Send what is left."""
        self._over.set()
        self._thread.join(END_SECONDS)

    def _work(self) -> None:
        while not self._over.wait(EVERY_SECONDS):
            for to in To:
                self._send_some(to)
        for to in To:
            while self._send_some(to):
                pass

    def _send_some(self, to: To) -> bool:
        """Send the oldest items of a kind; return whether there were any, and they are sent."""
        with self._lock:
            some = self._waiting[to][:AT_ONCE]
        if not some:
            return False
        try:
            self._client.request("POST", to.value, json=some)
        except Exception as error:  # noqa: BLE001  whatever fails here, it is no reason to lose a run
            if not self._failed:
                stewardlog.record(error, where="telling the Prefect server of a run")
            self._failed = True
            return False
        with self._lock:
            del self._waiting[to][: len(some)]
        return True


_current: contextvars.ContextVar[Sender | None] = contextvars.ContextVar("sender", default=None)


@contextmanager
def sending() -> Iterator[Sender]:
    """Yield the sender of the current run: the one that is open already, or else one for as long as this context lasts."""
    if sender := _current.get():
        yield sender
        return
    flow = FlowRunContext.get()
    with ExitStack() as stack:
        client = flow.client if flow else None
        if not isinstance(client, SyncPrefectClient):
            client = stack.enter_context(get_client(sync_client=True))
        sender = Sender(client)
        stack.callback(sender.close)
        stack.callback(_current.reset, _current.set(sender))
        yield sender
