"""Which Prefect server is meant, and whether it answers.

Prefect is imported as late as can be: it reads its environment when it is.
"""

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flows.server.temporary import own_home


def configured_url() -> str | None:
    """Return the API URL that the environment, the profile or a settings file names, if any."""
    from prefect.settings import get_current_settings  # noqa: PLC0415

    return get_current_settings().api.url or None


def server_answers(url: str, *, timeout: float, direct: bool = False) -> bool:
    """Tell whether a Prefect server answers at an API URL. One that asks for a password does.

    Args:
        url: The API's URL.
        timeout: How many seconds it has.
        direct: Whether it is one of our own on this machine, for which no proxy is asked.
    """
    import httpx  # noqa: PLC0415

    try:
        # No secret is sent, so that it does not matter here who answers; Prefect's own client checks certificates.
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
    """Return a URL without the name and password it may hold."""
    import httpx  # noqa: PLC0415

    try:
        return str(httpx.URL(url).copy_with(username=None, password=None))
    except httpx.InvalidURL:
        return "PREFECT_API_URL"


def homes() -> dict[str, str]:
    """Return the folders that Prefect is to take for homes: our own, unless it has one in which there is a profile to read."""
    own = str(own_home())
    try:
        profiles = Path.home() / ".prefect" / "profiles.toml"
    except RuntimeError:  # an account without a home folder, as containers have it; Prefect then fails to be imported
        return {"HOME": own, "PREFECT_HOME": os.environ.get("PREFECT_HOME", own)}
    if "PREFECT_HOME" in os.environ or os.access(profiles, os.R_OK):
        return {}
    return {"PREFECT_HOME": own}


def no_proxy() -> dict[str, str]:
    """Return the variables that keep a proxy, if there is one, from being asked for the server on this machine."""
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    return dict.fromkeys(("no_proxy", "NO_PROXY"), f"{direct},127.0.0.1" if direct else "127.0.0.1")


def read_settings() -> None:
    """Make Prefect, also its threads, go by the environment as it is now."""
    from prefect.context import refresh_global_settings_context  # noqa: PLC0415

    with no_warnings():
        refresh_global_settings_context()


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set some variables of the environment for as long as the context lasts."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def no_warnings() -> Iterator[None]:
    """Keep Prefect from warning of a home folder that it cannot make: only a temporary server needs one, and looks after it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
