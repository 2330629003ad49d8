"""Clients that write HTTP by hand, as attackers do, and servers in threads for them."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import uvicorn

LOOPBACK = "127.0.0.1"
WATCHDOG_SECONDS = 120
HALF_OPEN = 600


@contextmanager
def serving(config_of: Callable[[int], uvicorn.Config]) -> Iterator[tuple[int, uvicorn.Server]]:
    """Serve in a thread by settings for a port; yield port and server. A client that comes before it is up waits in the backlog."""
    with socket.create_server((LOOPBACK, 0)) as listening:
        port = listening.getsockname()[1]
        server = uvicorn.Server(config_of(port))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield port, server
        finally:
            server.should_exit = True
            thread.join()


def connected(port: int, sent: bytes) -> socket.socket:
    """Connect to a server, and send it something, which it may not want to read."""
    client = socket.create_connection((LOOPBACK, port), timeout=WATCHDOG_SECONDS)
    with suppress(ConnectionError):
        client.sendall(sent)
    return client


def heard(client: socket.socket) -> bytes:
    """Return all that a server sends until it closes the connection."""
    answer = b""
    with client, suppress(ConnectionError):
        while part := client.recv(2**16):
            answer += part
    return answer


def is_open(client: socket.socket) -> bool:
    """Return whether the server has neither sent anything nor closed the connection."""
    client.setblocking(False)
    try:
        client.recv(1)
    except BlockingIOError:
        return True
    except ConnectionError:
        pass
    return False


MALFORMED = frozenset({"two different lengths", "a length below 0", "an unknown coding", "an invalid chunk"})
"""Requests that uvicorn itself refuses, without a gate."""


def unread_requests(host: str, path: str) -> dict[str, bytes]:
    """Return requests to be refused before their end, by what is wrong with them. Each contains another request, and one follows it."""
    smuggled = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()

    def request(
        *headers: str, host: str = host, method: str = "POST", path: str = path, body: bytes = smuggled
    ) -> bytes:
        head = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers]
        return "\r\n".join([*head, "", ""]).encode() + body + smuggled

    upgrade = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        f"Sec-WebSocket-Key: {'A' * 22}==",
        "Sec-WebSocket-Version: 13",
    )
    length, chunked = f"Content-Length: {len(smuggled)}", "Transfer-Encoding: chunked"
    return {
        "two lengths": request("Content-Length: 5", chunked, body=b"0\r\n\r\n"),
        "two lengths, longer": request(length, chunked, body=b"0\r\n\r\n"),
        "two different lengths": request(length, "Content-Length: 5"),
        "a length below 0": request("Content-Length: -1"),
        "an unknown coding": request("Transfer-Encoding: identity"),
        "an invalid chunk": request(chunked, body=b"zz\r\n"),
        "a foreign host": request(length, host="evil.test"),
        "a foreign host, waiting": request(length, "Expect: 100-continue", host="evil.test"),
        "a foreign host, in chunks": request(chunked, host="evil.test", body=b"0\r\n\r\n"),
        "a foreign origin": request(length, "Origin: http://evil.test"),
        "a WebSocket with a body": request(length, *upgrade, method="GET"),
        "another method": request(length, method="BREW"),
        "no path": request(length, path="*"),
        "a large body": request("Content-Length: 99999999"),
    }


def refused(port: int, path: str) -> dict[str, bytes]:
    """Return what a server answers to such requests until it closes their connections."""
    requests = unread_requests(f"{LOOPBACK}:{port}", path)
    return {name: heard(connected(port, request)) for name, request in requests.items()}


def is_last_answer(answers: bytes) -> bool:
    """Return whether a server has answered no request, or one and has said that it answers no more."""
    return answers.count(b"HTTP/1.1 ") == answers.lower().count(b"connection: close") < 2


def status_behind_half_open(port: int, path: str, clients: int = HALF_OPEN) -> tuple[int, bool]:
    """Return the status of a request that comes after clients with half a request, and whether the first of them is still connected."""
    with ExitStack() as stack:
        first, *_ = [stack.enter_context(connected(port, b"GET / HTTP/1.1\r\n")) for _ in range(clients)]
        late = http.client.HTTPConnection(LOOPBACK, port, timeout=WATCHDOG_SECONDS)
        stack.callback(late.close)
        late.request("GET", path, headers={"Connection": "close"})
        return late.getresponse().status, is_open(first)
