"""Unguessable passwords and login addresses for the Prefect servers that dpflow starts on this machine.

Every account on the machine, and every page in a browser on it, can connect to a port on loopback. Server and clients get the password
in their environment, which no other account can read, and never on a command line, which every account can read.
"""

import base64
import os
import secrets

from dpcore.errors import UsageError
from flows.server.gate import OPEN_PATH
from flows.server.running import ui_folder

NAME = "password"
USER = "dpflow"
LAST_PORT = 2**16 - 1
BLOCKED_PORTS = frozenset(
    [1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, *range(6665, 6670), 6679, 6697, 10080]
)
"""Unprivileged ports to which browsers refuse to connect, by the Fetch standard."""


def new_password() -> str:
    """Return a new random `USER:PASSWORD`."""
    return f"{USER}:{secrets.token_urlsafe(24)}"


def random_port() -> int:
    """Return a random port, free or not, from all unprivileged ports that browsers can use."""
    return secrets.choice([port for port in range(1024, LAST_PORT + 1) if port not in BLOCKED_PORTS])


def new_login_path() -> str:
    """Return a new random path of the login page, so that no page which an earlier program on this port left in a browser is opened."""
    return f"{OPEN_PATH}/{secrets.token_urlsafe(16)}"


def make_password() -> str:
    """Make and store a new `USER:PASSWORD` for a server that `dpflow ui` starts.

    Each start has its own, so the password of an earlier server is worthless.
    """
    secret, draft = new_password(), ui_folder() / f"{NAME}.new"
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as output:
        output.write(secret)
    draft.replace(ui_folder() / NAME)
    return secret


def password() -> str:
    """Return `USER:PASSWORD` of the server that `dpflow ui` runs in this folder.

    Raises:
        UsageError: The password file is gone, or other accounts may have read it.
    """
    secret = kept_password()
    if secret is None:
        raise UsageError(
            f"the password of the local server, in {str(ui_folder() / NAME)!r}, can't be read or is open to other users; "
            "run `dpflow ui --stop`, then `dpflow ui`, which makes a new one"
        )
    return secret


def client_environment(url: str, secret: str) -> dict[str, str]:
    """Return the environment variables with which Prefect's clients use a server of ours."""
    return {"PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": secret, "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "true"}


def authorization(secret: str) -> dict[str, str]:
    """Return the header that authenticates a request with a `USER:PASSWORD`."""
    return {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"}


def kept_password() -> str | None:
    """Return the stored `USER:PASSWORD`, or None if there is none or other accounts may have read it."""
    file = ui_folder() / NAME
    try:
        secret = file.read_text(encoding="ascii")
        return secret if secret.startswith(f"{USER}:") and not file.stat().st_mode & 0o077 else None
    except (OSError, ValueError):
        return None
