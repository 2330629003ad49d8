"""Find the configured Prefect server, check whether it answers, and set the environment that Prefect reads.

Prefect is imported as late as possible, because it reads its environment on import.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.server.temporary import own_home


def configured_url() -> str | None:
    """Return the API URL that the environment, the profile or a settings file names, if any."""
    from prefect.settings import get_current_settings  # noqa: PLC0415

    return get_current_settings().api.url or None


def server_answers(url: str, *, timeout: float = 3.0, direct: bool = False) -> bool:
    """Return whether a Prefect server answers at an API URL. Asking for a password counts as an answer.

    Args:
        url: The API's URL.
        timeout: The timeout in seconds.
        direct: Whether to bypass proxies, for a server of ours on this machine.
    """
    import httpx  # noqa: PLC0415

    try:
        # No secret is sent, so it does not matter here who answers. Prefect's own client checks certificates.
        answer = httpx.get(
            f"{url.rstrip('/')}/health",
            timeout=timeout,
            verify=False,  # noqa: S501  see above
            follow_redirects=True,
            trust_env=not direct,
        )
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
    return answer.status_code in {httpx.codes.OK, httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}


def shown(url: str) -> str:
    """Return a URL without any user name and password in it."""
    import httpx  # noqa: PLC0415

    try:
        return str(httpx.URL(url).copy_with(username=None, password=None))
    except httpx.InvalidURL:
        return "PREFECT_API_URL"


def homes() -> dict[str, str]:
    """Return the variables that give Prefect a home folder of ours, unless one is set or `~/.prefect` has a readable profile."""
    own = str(own_home())
    try:
        profiles = Path.home() / ".prefect" / "profiles.toml"
    except RuntimeError:  # an account without a home folder, as in containers; importing Prefect would fail
        return {"HOME": own, "PREFECT_HOME": os.environ.get("PREFECT_HOME", own)}
    if "PREFECT_HOME" in os.environ or os.access(profiles, os.R_OK):
        return {}
    return {"PREFECT_HOME": own}


def no_proxy() -> dict[str, str]:
    """Return the variables that make requests to the server on this machine bypass any proxy."""
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    return dict.fromkeys(("no_proxy", "NO_PROXY"), f"{direct},127.0.0.1" if direct else "127.0.0.1")


def read_settings() -> None:
    """Make Prefect, including its threads, read the environment again."""
    from prefect.context import refresh_global_settings_context  # noqa: PLC0415

    with no_warnings():
        refresh_global_settings_context()


@contextmanager
def no_warnings() -> Iterator[None]:
    """Silence Prefect's warning about a home folder that it can't create: only a temporary server needs one, and creates it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
