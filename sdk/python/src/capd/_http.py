"""HTTP/1.1 without I/O: bytes of requests out, bytes of responses in.

The standard library has no client that asyncio can use, so both transports share this one. It speaks to one server, the
sidecar beside the agent, and reads what that may send: a length, chunks, or a body that ends with the connection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from ._address import Address

HEAD_BYTES_MAX = 64 * 1024


class TransportError(Exception):
    """A request that has no whole answer."""


class Unreachable(TransportError):
    """No connection: nothing was sent."""


class Broken(TransportError):
    """The connection broke. `is_stale`: it had been kept alive, and broke before the answer began."""

    def __init__(self, message: str, is_stale: bool = False) -> None:
        super().__init__(message)
        self.is_stale = is_stale


class Late(TransportError):
    """The deadline passed before the answer was whole."""


@dataclass
class Request:
    """One request. `written` is set once its last byte was given to the operating system."""

    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict)
    body: Optional[bytes] = None
    written: bool = False

    def encode(self, address: Address) -> bytes:
        """Its bytes, as the sidecar at that address takes them."""
        lines = [f"{self.method} {self.target} HTTP/1.1", f"Host: {address.authority}"]
        if address.token is not None:
            lines.append(f"Authorization: Bearer {address.token}")
        lines.extend(f"{name}: {value}" for name, value in self.headers.items())
        if self.body is not None:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("utf-8") + (self.body or b"")


@dataclass
class Response:
    """A response. The names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def is_stream(self) -> bool:
        """Whether its body is a stream of events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")


class ResponseParser:
    """Reads one response from the bytes that are fed to it.

    `head` is there once the head is complete, `done` once the body is. What follows the response stays in `rest`.
    """

    def __init__(self, method: str = "GET") -> None:
        self.head: Optional[Response] = None
        self.done = False
        self.rest = b""
        self.keeps_alive = True
        self._method = method
        self._buffer = b""
        self._left: Optional[int] = 0
        self._chunked = False
        self._in_trailer = False

    def feed(self, data: bytes) -> bytes:
        """The bytes of the body that these bytes complete.

        Raises `Broken` for what is not HTTP.
        """
        self._buffer += data
        if self.head is None and not self._read_head():
            return b""
        try:
            return self._body()
        except ValueError as error:
            raise Broken(f"not a body of HTTP/1.1: {error}") from None

    def end(self) -> None:
        """The connection ended. Raises `Broken` unless that ends the body as well."""
        if self.head is None or self._chunked or self._left is not None:
            raise Broken("the sidecar closed the connection")
        self.done = True

    def _read_head(self) -> bool:
        while self.head is None:
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                if len(self._buffer) > HEAD_BYTES_MAX:
                    raise Broken(f"the head of the response is larger than {HEAD_BYTES_MAX} bytes")
                return False
            self._buffer = rest
            response = _parse_head(head)
            # 100 Continue and its like come before the response itself.
            if response.status >= 200:
                self.head = response
                self._frame(response)
        return True

    def _frame(self, response: Response) -> None:
        headers = response.headers
        self.keeps_alive = "close" not in headers.get("connection", "").lower()
        if self._method == "HEAD" or response.status in (204, 304):
            self.done = True
        elif "chunked" in headers.get("transfer-encoding", "").lower():
            self._chunked = True
        elif "content-length" in headers:
            try:
                self._left = int(headers["content-length"])
            except ValueError:
                raise Broken(f"Content-Length {headers['content-length']!r} is no number") from None
        else:
            self._left = None
            self.keeps_alive = False

    def _body(self) -> bytes:
        body = b""
        if not self.done:
            if self._chunked:
                body = self._chunks()
            elif self._left is None:
                body, self._buffer = self._buffer, b""
            else:
                body, self._buffer = self._buffer[:self._left], self._buffer[self._left:]
                self._left -= len(body)
                self.done = self._left == 0
        if self.done:
            self.rest = self._buffer
        return body

    def _chunks(self) -> bytes:
        parts = []
        while not self.done:
            if self._left is not None and self._left > 0:
                part = self._buffer[:self._left]
                if not part:
                    break
                parts.append(part)
                self._buffer = self._buffer[len(part):]
                self._left -= len(part)
                if self._left == 0:
                    # The line end after the chunk's data comes before the next size.
                    self._left = -1
                continue
            line, end, rest = self._buffer.partition(b"\r\n")
            if not end:
                if len(self._buffer) > HEAD_BYTES_MAX:
                    raise ValueError("the size of a chunk is too long")
                break
            self._buffer = rest
            if self._left == -1:
                if line:
                    raise ValueError("a chunk is longer than its size")
                self._left = 0
            elif self._in_trailer:
                self.done = not line
            else:
                self._left = int(line.split(b";")[0], 16)
                self._in_trailer = self._left == 0
        return b"".join(parts)


def _parse_head(head: bytes) -> Response:
    first, *lines = head.decode("utf-8", "replace").split("\r\n")
    parts = first.split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise Broken(f"not a response of HTTP/1.1: {first[:100]!r}")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Response(int(parts[1]), headers)
