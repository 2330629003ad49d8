"""The configured Prefect server: who can reach it, and what it tells them."""

import ipaddress
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from flows.server.connection import shown
from flows.server.password import authorization

if TYPE_CHECKING:
    from prefect.settings import Settings

ASK_SECONDS = 5.0


class Reach(StrEnum):
    """From where an address can be reached."""

    LOOPBACK = "this machine"
    NEAR = "a private network"
    FAR = "a public address"


@dataclass(frozen=True)
class Server:
    """What a server answered.

    Attributes:
        url: The URL of its API, without any user name and password.
        reach: From where it can be reached.
        answers: Whether it answered at all.
        is_open: Whether it told its settings without credentials.
        version: Its version, if it told it.
        settings: Its own settings, if it told them. Prefect masks secrets.
        has_result_storage: Whether it has a default block to which results are written.
    """

    url: str
    reach: Reach
    answers: bool = False
    is_open: bool = False
    version: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    has_result_storage: bool = False

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection is encrypted."""
        return self.url.startswith("https:")

    def setting(self, accessor: str) -> Any:
        """Return a setting of the server, such as `server.api.host`, or None if it is not known."""
        return value_at(self.settings, accessor)


def ask(url: str, settings: "Settings", *, secret: str | None = None) -> Server:
    """Ask a server for its settings and version, first without credentials.

    Credentials are sent only over loopback, or encrypted to a server whose certificate proves its identity.

    Args:
        url: The URL of its API.
        settings: Prefect's settings.
        secret: The server's `USER:PASSWORD`, if it is not the one in the settings.
    """
    url = shown(url).rstrip("/")
    server = Server(url, reach=reach(urlsplit(url).hostname or ""))
    # No secret is sent, so it does not matter yet who answers.
    with httpx.Client(verify=False, timeout=ASK_SECONDS) as anybody:  # noqa: S501
        answer = _asked(server, anybody)
    if not answer.answers or "server" in answer.settings:
        return replace(answer, is_open=answer.answers)
    safe = server.reach is Reach.LOOPBACK or (server.is_encrypted and not settings.api.tls_insecure_skip_verify)
    credentials = authorization(secret)["Authorization"] if secret else _credentials(settings)
    if not (safe and credentials):
        return Server(url, reach=server.reach, answers=True)
    headers, verify = {"Authorization": credentials}, _trusted(server, settings)
    with httpx.Client(verify=verify, timeout=ASK_SECONDS, headers=headers) as ours:
        return replace(_asked(server, ours), answers=True)


def value_at(content: Any, path: str) -> Any:
    """Return a value of nested mappings by its path, such as `server.api.host`, or None if there is none."""
    for part in path.split("."):
        content = content.get(part) if isinstance(content, Mapping) else None
    return content


def reach(host: str) -> Reach:
    """Return from where a host can be reached, by the most exposed of its addresses. An unknown host counts as public."""
    try:
        entries = socket.getaddrinfo(host, None) if host else []
    except (OSError, UnicodeError):
        entries = []
    addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in entries]
    if addresses and all(address.is_loopback for address in addresses):
        return Reach.LOOPBACK
    # 0.0.0.0 stands for all addresses of the machine.
    if addresses and all(address.is_private and not address.is_unspecified for address in addresses):
        return Reach.NEAR
    return Reach.FAR


def _asked(server: Server, client: httpx.Client) -> Server:
    """Return a server with what it tells a client. A login page tells nothing."""
    answers, settings = _read(client, f"{server.url}/admin/settings")
    if not isinstance(settings, dict):
        return replace(server, answers=answers)
    (_, version), (_, storage) = (_read(client, f"{server.url}/admin/{name}") for name in ("version", "storage"))
    return replace(
        server,
        answers=True,
        version=version if isinstance(version, str) else None,
        settings=settings,
        has_result_storage=isinstance(storage, dict) and bool(storage.get("default_result_storage_block_id")),
    )


def _read(client: httpx.Client, url: str) -> tuple[bool, Any]:
    """Return whether there is an answer, and its JSON; None if it is an error, a login page, or missing."""
    try:
        answer = client.get(url)
    except (httpx.HTTPError, httpx.InvalidURL):
        return False, None
    try:
        return True, answer.json() if answer.status_code == httpx.codes.OK else None
    except ValueError:
        return True, None


def _trusted(server: Server, settings: "Settings") -> ssl.SSLContext | bool:
    """Return the TLS verification for a client: the configured or default certificates, or none if nothing is encrypted."""
    own = settings.api.ssl_cert_file
    try:
        return ssl.create_default_context(cafile=own) if own and server.is_encrypted else server.is_encrypted
    except OSError:  # the file is missing or invalid: trust no host
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _credentials(settings: "Settings") -> str | None:
    if settings.api.auth_string:
        return authorization(settings.api.auth_string.get_secret_value())["Authorization"]
    return f"Bearer {settings.api.key.get_secret_value()}" if settings.api.key else None
