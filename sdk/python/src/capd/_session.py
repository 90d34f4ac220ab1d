"""One session of a provider: the events of its stream in, progress and results out."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Mapping, Optional
from urllib.parse import quote

from . import _json
from ._async import AsyncTransport
from ._capability import Capability
from ._context import Cancelled, Context
from ._http import Request, TransportError
from ._patience import Backoff
from ._sse import Event
from .errors import CallError

log = logging.getLogger("capd")

#: How long the next session waits for handlers of the last one to end. Those that go on have nobody to answer.
END_SECONDS_MAX = 1.0


class Session:
    """The calls that run under one stream."""

    def __init__(self, transport: AsyncTransport, pool: ThreadPoolExecutor, capabilities: Mapping[str, Capability]) -> None:
        self._transport = transport
        self._pool = pool
        self._capabilities = capabilities
        self._id: Optional[str] = None
        self._running: dict[str, _Running] = {}

    def handle(self, event: Event) -> bool:
        """Takes one event; whether it was `ready`. Events of a newer sidecar are ignored."""
        if event.kind == "ready":
            self._id = str(event.data["session"])
            return True
        if event.kind == "call":
            self._begin(event.data)
        elif event.kind == "cancel":
            running = self._running.get(str(event.data.get("id")))
            if running is not None:
                running.cancel(str(event.data.get("reason") or "cancelled"))
        return False

    async def drained(self, seconds: float) -> None:
        """Waits until nothing runs, for so long at most."""
        tasks = [running.task for running in self._running.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def end(self) -> None:
        """Cancels what runs: nobody can take its results any more."""
        for running in list(self._running.values()):
            running.cancel("the connection to the sidecar broke")
            running.abandon()
        if self._running:
            await asyncio.wait([running.task for running in self._running.values()], timeout=END_SECONDS_MAX)

    def _begin(self, data: Mapping[str, Any]) -> None:
        name, version = str(data["capability"]), data.get("version")
        id = name if ":" in name or version is None else f"{name}:{version}"
        call_id = str(data["id"])
        running = _Running(self, call_id)
        context = Context(call_id, id, data.get("params"), data.get("caller"), data.get("thread"), data.get("traceparent"),
                          data.get("deadline_ms"), running.post)
        running.begin(self._capabilities.get(id), context)
        self._running[call_id] = running
        running.task.add_done_callback(lambda _: self._running.pop(call_id, None))

    async def post(self, call_id: str, what: str, body: Any) -> None:
        """Posts until an answer comes. Whatever the answer is, it settles the matter."""
        path = f"/v1/provide/{quote(self._id or '', safe='')}/calls/{quote(call_id, safe='')}/{what}"
        request = Request("POST", path, {"Content-Type": "application/json", "Accept": "application/json"}, _json.dumps(body))
        backoff = Backoff()
        while True:
            try:
                response = await self._transport.exchange(request, None)
            except TransportError as error:
                log.debug("%s of call %s: %s", what, call_id, error)
                await asyncio.sleep(backoff.pause())
                continue
            if response.status == 409:
                log.info("%s of call %s came after its end", what, call_id)
            elif response.status >= 300:
                log.error("%s of call %s was refused: HTTP status %d: %s", what, call_id, response.status, response.body[:500].decode("utf-8", "replace"))
            return


class _Running:
    """One call: its handler's task, and what is still to be posted, in order."""

    task: asyncio.Task[None]

    def __init__(self, session: Session, id: str) -> None:
        self._session = session
        self._id = id
        self._loop = asyncio.get_running_loop()
        self._outbox: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._context: Optional[Context] = None
        self._handler: Optional[asyncio.Future[Any]] = None
        self._is_cancelled = False
        self._is_abandoned = False

    def begin(self, capability: Optional[Capability], context: Context) -> None:
        self._context = context
        self.task = asyncio.ensure_future(self._run(capability, context))

    def post(self, what: str, body: Any) -> None:
        """Puts something in the outbox, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._outbox.put_nowait, (what, body))
        except RuntimeError:
            # The agent has ended; so has the call.
            pass

    def cancel(self, reason: str) -> None:
        """Cancels the handler, by the means that it has."""
        self._is_cancelled = True
        if self._context is not None and not self._context.cancelled.is_set():
            self._context.reason = reason
            self._context.cancelled.set()
        if self._handler is not None:
            self._handler.cancel()

    def abandon(self) -> None:
        """Posts nothing more."""
        self._is_abandoned = True
        if self._handler is None or self._handler.done():
            self.task.cancel()

    async def _run(self, capability: Optional[Capability], context: Context) -> None:
        sending = asyncio.ensure_future(self._send())
        try:
            answer = await self._answer(capability, context)
            if self._is_abandoned or answer is None:
                sending.cancel()
                return
            # Behind what the handler has posted from a thread.
            self._loop.call_soon(self._outbox.put_nowait, ("result", answer))
            await sending
        except asyncio.CancelledError:
            sending.cancel()

    async def _send(self) -> None:
        what = ""
        while what != "result":
            what, body = await self._outbox.get()
            await self._session.post(self._id, what, body)

    async def _answer(self, capability: Optional[Capability], context: Context) -> Optional[dict[str, Any]]:
        """Runs the handler; the body of its answer, or None when the call was cancelled."""
        if self._is_cancelled:
            return None
        if capability is None:
            return _error(4002, f"this agent does not serve {context.capability}")
        try:
            arguments, named = capability.bound(context.params, context)
            if capability.is_async:
                self._handler = asyncio.ensure_future(capability.function(*arguments, **named))
            else:
                # What the program keeps in context variables is there in the thread as well.
                inside = contextvars.copy_context()
                self._handler = self._loop.run_in_executor(self._session._pool, lambda: inside.run(capability.function, *arguments, **named))
            result = await self._handler
            return {"result": _checked(result)}
        except CallError as error:
            body = {"code": error.code, "message": error.message}
            if error.details is not None:
                body["details"] = error.details
            return {"error": body}
        except (asyncio.CancelledError, Cancelled):
            if self._is_cancelled:
                return None
            return _error(5001, "the handler was cancelled by its own program")
        except Exception as error:
            # Its text may hold what no caller may see: it stays in this log.
            log.exception("call %s of %s failed", self._id, context.capability)
            return _error(5001, f"the handler failed: {type(error).__name__}")


def _checked(result: Any) -> Any:
    """The result as plain JSON. Raises for what is none, so that the handler's own log says so."""
    _json.dumps(result)
    return result


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}
