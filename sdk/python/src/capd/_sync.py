"""Carries requests over blocking sockets. Threads may share one transport."""

from __future__ import annotations

import socket
import threading
import time
from typing import Optional

from ._address import Address
from ._http import Broken, Late, Request, Response, ResponseParser, TransportError, Unreachable
from ._sse import Event, EventParser

IDLE_CONNECTIONS_MAX = 32
READ_BYTES = 64 * 1024
CONNECT_SECONDS_MAX = 10.0


class SyncStream:
    """A response whose body is read event by event. Not a stream of events: `response.body` is whole."""

    def __init__(self, response: Response, connection: Optional[_Connection], first: bytes) -> None:
        self.response = response
        self._connection = connection
        self._events = EventParser()
        self._ready: list[Event] = self._events.feed(first) if connection else []

    def next(self, deadline: Optional[float]) -> Optional[Event]:
        """The next event; None once the stream has ended in good order."""
        while not self._ready:
            if self._connection is None or self._connection.parser.done:
                return None
            self._ready = self._events.feed(self._connection.receive(deadline))
        return self._ready.pop(0)

    def close(self) -> None:
        """Closes the connection. What was not read is lost."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SyncTransport:
    """A pool of connections to one sidecar."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._closed = False

    def exchange(self, request: Request, deadline: Optional[float]) -> Response:
        """Sends a request and reads its whole response."""
        response, connection, body = self._begin(request, deadline)
        parts = [body]
        try:
            while not connection.parser.done:
                parts.append(connection.receive(deadline))
        except BaseException:
            connection.close()
            raise
        self._release(connection)
        response.body = b"".join(parts)
        return response

    def open(self, request: Request, deadline: Optional[float]) -> SyncStream:
        """Sends a request and reads the head of its response; and the body, when that is no stream of events."""
        response, connection, body = self._begin(request, deadline)
        try:
            if response.is_stream:
                return SyncStream(response, connection, body)
            while not connection.parser.done:
                body += connection.receive(deadline)
        except BaseException as error:
            connection.close()
            if isinstance(error, ValueError):
                raise Broken(f"not an event: {error}") from None
            raise
        self._release(connection)
        response.body = body
        return SyncStream(response, None, b"")

    def close(self) -> None:
        """Closes the connections that no request uses."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _begin(self, request: Request, deadline: Optional[float]) -> tuple[Response, _Connection, bytes]:
        connection = self._take() or _Connection(self.address, deadline)
        try:
            connection.send(request, deadline)
            body = b""
            while connection.parser.head is None:
                body = connection.receive(deadline)
            return connection.parser.head, connection, body
        except BaseException as error:
            connection.close()
            if isinstance(error, Broken) and connection.was_used and connection.received == 0:
                # The sidecar has restarted, or closed what was idle: the others are no better.
                self._drop_idle()
                raise Broken(str(error), is_stale=True) from None
            raise

    def _take(self) -> Optional[_Connection]:
        with self._lock:
            if self._closed:
                raise RuntimeError("this client is closed")
            return self._idle.pop() if self._idle else None

    def _release(self, connection: _Connection) -> None:
        with self._lock:
            if not self._closed and connection.parser.keeps_alive and len(self._idle) < IDLE_CONNECTIONS_MAX:
                connection.was_used = True
                self._idle.append(connection)
                return
        connection.close()

    def _drop_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class _Connection:
    """One connection, and the response that is being read from it."""

    def __init__(self, address: Address, deadline: Optional[float]) -> None:
        self.was_used = False
        self.received = 0
        self.parser = ResponseParser()
        self._address = address
        try:
            seconds = min(_left(deadline) or CONNECT_SECONDS_MAX, CONNECT_SECONDS_MAX)
            if address.path is not None:
                self._socket = socket.socket(socket.AF_UNIX)
                try:
                    self._socket.settimeout(seconds)
                    self._socket.connect(address.path)
                except BaseException:
                    self._socket.close()
                    raise
            else:
                self._socket = socket.create_connection((address.host, address.port), seconds)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except Late as error:
            raise Unreachable(str(error)) from None
        except OSError as error:
            raise Unreachable(f"cannot connect to the sidecar at {address}: {error.strerror or error}") from None

    def send(self, request: Request, deadline: Optional[float]) -> None:
        self.parser = ResponseParser(request.method)
        self.received = 0
        try:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(request.encode(self._address))
        except OSError as error:
            raise _transport_error(error, deadline) from None
        request.written = True

    def receive(self, deadline: Optional[float]) -> bytes:
        """Bytes of the body; none when what came was of the head alone."""
        try:
            self._socket.settimeout(_left(deadline))
            data = self._socket.recv(READ_BYTES)
        except OSError as error:
            raise _transport_error(error, deadline) from None
        if not data:
            self.parser.end()
            return b""
        self.received += len(data)
        return self.parser.feed(data)

    def close(self) -> None:
        self._socket.close()


def _left(deadline: Optional[float]) -> Optional[float]:
    """The seconds until a deadline of the monotonic clock. Raises `Late` once it has passed."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise Late("the sidecar did not answer in time")
    return left


def _transport_error(error: OSError, deadline: Optional[float]) -> TransportError:
    if isinstance(error, socket.timeout) and deadline is not None:
        return Late("the sidecar did not answer in time")
    return Broken(f"the connection to the sidecar broke: {error.strerror or error}")
