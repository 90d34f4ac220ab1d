"""Carries requests over asyncio. One transport belongs to one event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Coroutine, Optional, TypeVar

from ._address import Address
from ._http import Broken, Late, Request, Response, ResponseParser, Unreachable
from ._sse import Event, EventParser
from ._sync import CONNECT_SECONDS_MAX, IDLE_CONNECTIONS_MAX, READ_BYTES

T = TypeVar("T")


class AsyncStream:
    """A response whose body is read event by event. Not a stream of events: `response.body` is whole."""

    def __init__(self, response: Response, connection: Optional[_Connection], first: bytes) -> None:
        self.response = response
        self._connection = connection
        self._events = EventParser()
        self._ready: list[Event] = self._events.feed(first) if connection else []

    async def next(self, deadline: Optional[float]) -> Optional[Event]:
        """The next event; None once the stream has ended in good order."""
        while not self._ready:
            if self._connection is None or self._connection.parser.done:
                return None
            self._ready = self._events.feed(await self._connection.receive(deadline))
        return self._ready.pop(0)

    async def bytes_came(self, seconds: float) -> None:
        """Waits for more bytes, whether they hold an event or only a comment. Raises `Late` when none come."""
        if self._connection is not None and not self._connection.parser.done and not self._ready:
            self._ready = self._events.feed(await self._connection.receive(time.monotonic() + seconds))

    def take(self) -> Optional[Event]:
        """An event that has come already."""
        return self._ready.pop(0) if self._ready else None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come."""
        return not self._ready and (self._connection is None or self._connection.parser.done)

    def close(self) -> None:
        """Closes the connection. What was not read is lost."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class AsyncTransport:
    """A pool of connections to one sidecar."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._idle: list[_Connection] = []
        self._closed = False

    async def exchange(self, request: Request, deadline: Optional[float]) -> Response:
        """Sends a request and reads its whole response."""
        response, connection, body = await self._begin(request, deadline)
        parts = [body]
        try:
            while not connection.parser.done:
                parts.append(await connection.receive(deadline))
        except BaseException:
            connection.close()
            raise
        self._release(connection)
        response.body = b"".join(parts)
        return response

    async def open(self, request: Request, deadline: Optional[float]) -> AsyncStream:
        """Sends a request and reads the head of its response; and the body, when that is no stream of events."""
        response, connection, body = await self._begin(request, deadline)
        try:
            if response.is_stream:
                return AsyncStream(response, connection, body)
            while not connection.parser.done:
                body += await connection.receive(deadline)
        except BaseException as error:
            connection.close()
            if isinstance(error, ValueError):
                raise Broken(f"not an event: {error}") from None
            raise
        self._release(connection)
        response.body = body
        return AsyncStream(response, None, b"")

    def close(self) -> None:
        """Closes the connections that no request uses."""
        self._closed = True
        self._drop_idle()

    async def _begin(self, request: Request, deadline: Optional[float]) -> tuple[Response, _Connection, bytes]:
        if self._closed:
            raise RuntimeError("this client is closed")
        connection = self._idle.pop() if self._idle else await _Connection.open(self.address, deadline)
        try:
            await connection.send(request, deadline)
            body = b""
            while connection.parser.head is None:
                body = await connection.receive(deadline)
            return connection.parser.head, connection, body
        except BaseException as error:
            connection.close()
            if isinstance(error, Broken) and connection.was_used and connection.received == 0:
                # The sidecar has restarted, or closed what was idle: the others are no better.
                self._drop_idle()
                raise Broken(str(error), is_stale=True) from None
            raise

    def _release(self, connection: _Connection) -> None:
        if not self._closed and connection.parser.keeps_alive and len(self._idle) < IDLE_CONNECTIONS_MAX:
            connection.was_used = True
            self._idle.append(connection)
        else:
            connection.close()

    def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class _Connection:
    """One connection, and the response that is being read from it."""

    def __init__(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.was_used = False
        self.received = 0
        self.parser = ResponseParser()
        self._address = address
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: Address, deadline: Optional[float]) -> _Connection:
        limit = time.monotonic() + CONNECT_SECONDS_MAX
        try:
            if address.path is not None:
                opening = asyncio.open_unix_connection(address.path)
            else:
                opening = asyncio.open_connection(address.host, address.port)
            ends = limit if deadline is None else min(deadline, limit)
            reader, writer = await _until(opening, ends, lambda streams: streams[1].close())
        except Late as error:
            raise Unreachable(str(error)) from None
        except OSError as error:
            raise Unreachable(f"cannot connect to the sidecar at {address}: {error.strerror or error}") from None
        return cls(address, reader, writer)

    async def send(self, request: Request, deadline: Optional[float]) -> None:
        self.parser = ResponseParser(request.method)
        self.received = 0
        try:
            self._writer.write(request.encode(self._address))
            # From here on the bytes go out even if nobody waits for it.
            request.written = True
            await _until(self._writer.drain(), deadline)
        except OSError as error:
            raise Broken(f"the connection to the sidecar broke: {error.strerror or error}") from None

    async def receive(self, deadline: Optional[float]) -> bytes:
        """Bytes of the body; none when what came was of the head alone."""
        try:
            data = await _until(self._reader.read(READ_BYTES), deadline)
        except OSError as error:
            raise Broken(f"the connection to the sidecar broke: {error.strerror or error}") from None
        if not data:
            self.parser.end()
            return b""
        self.received += len(data)
        return self.parser.feed(data)

    def close(self) -> None:
        self._writer.close()


async def _until(work: Coroutine[Any, Any, T], deadline: Optional[float], undo: Optional[Callable[[T], None]] = None) -> T:
    """Waits until a deadline of the monotonic clock. Raises `Late` once it has passed.

    `asyncio.wait_for` would do, but before Python 3.12 it loses a cancellation that comes together with the result. `undo`
    gets a result that comes when nobody waits any more.
    """
    if deadline is None and undo is None:
        return await work
    task = asyncio.ensure_future(work)

    def drop() -> None:
        task.cancel()
        task.add_done_callback(lambda _: None if task.cancelled() or task.exception() or undo is None else undo(task.result()))

    try:
        done, _ = await asyncio.wait((task,), timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
    except asyncio.CancelledError:
        drop()
        raise
    if not done:
        drop()
        raise Late("the sidecar did not answer in time")
    return task.result()
