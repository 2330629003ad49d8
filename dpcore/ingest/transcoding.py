"""A stream of text in a declared encoding, as UTF-8."""

import codecs
import io
from typing import Any

import pyarrow as pa

BLOCK_BYTES = 1 << 20


def transcoded(stream: pa.NativeFile, *, encoding: str) -> pa.NativeFile:
    """Return the stream as UTF-8; what the encoding gives no meaning becomes U+FFFD, which equals nothing declared."""
    return pa.PythonFile(io.BufferedReader(_Transcoded(stream, encoding), BLOCK_BYTES), mode="r")


class _Transcoded(io.RawIOBase):
    def __init__(self, stream: pa.NativeFile, encoding: str) -> None:
        super().__init__()
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._ready = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._ready and not self._ended:
            block = self._stream.read(BLOCK_BYTES)
            self._ended = not block
            self._ready = memoryview(self._decoder.decode(block, final=self._ended).encode("utf-8", "replace"))
        given = self._ready[: len(buffer)]
        buffer[: len(given)] = given
        self._ready = self._ready[len(given) :]
        return len(given)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()
