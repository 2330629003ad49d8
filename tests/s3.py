"""A server that speaks S3, in a thread of this process, and the environment that programs find it by."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.request import Request, urlopen

import fsspec
import pytest
from moto import backends
from moto.moto_server.werkzeug_app import MotoRequestHandler
from moto.server import ThreadedMotoServer

BUCKET = "public"


@contextmanager
def s3_server() -> Iterator[Mapping[str, str]]:
    """Start a server with an empty bucket, and yield the variables of the environment for its users."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it reports every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        services = tuple(backends.list_of_moto_modules())
        patch.setattr(backends, "list_of_moto_modules", lambda: services)  # it reads a folder for every request
        patch.setattr(MotoRequestHandler, "protocol_version", "HTTP/1.1")  # a connection is used again, as in S3
        yield from _serving(server)


def _serving(server: ThreadedMotoServer) -> Iterator[Mapping[str, str]]:
    server.start()
    try:
        host, port = server.get_host_and_port()
        address = f"http://{host}:{port}"
        _forget_earlier_servers(address)
        yield {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "SECRET-OF-TESTS",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        server.stop()


def _forget_earlier_servers(address: str) -> None:
    """Empty what a process keeps: moto all buckets of its servers, and fsspec the address of the first one."""
    with urlopen(Request(f"{address}/moto-api/reset", method="POST")):  # noqa: S310  the scheme is http
        fsspec.get_filesystem_class("s3").clear_instance_cache()


def new_bucket() -> None:
    """Create the bucket in the server that the environment names."""
    fsspec.filesystem("s3", use_listings_cache=False).mkdir(BUCKET)
