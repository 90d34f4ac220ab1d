"""The client for asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, AsyncGenerator, List, Optional, TypeVar

from . import _address, _flows
from ._async import AsyncStream, AsyncTransport
from ._client import CANCEL_SECONDS
from ._effects import Done, Exchange, Flow, Open, Pause, Read
from ._flows import Answer, BuiltAgainst, Call
from ._http import TransportError
from ._patience import WAIT_SECONDS
from ._sse import Event
from ._tools import Tools, checked_format

T = TypeVar("T")

log = logging.getLogger("capd")


class AsyncClient:
    """Calls capabilities through the sidecar beside this agent, for asyncio. One client belongs to one event loop.

    ::

        async with AsyncClient() as client:
            await client.call("com.acme.translate", {"text": "hello"})

    The arguments, methods and errors are those of `Client`. Cancelling the task that waits for a call cancels the call.
    """

    def __init__(self, address: Optional[str] = None, *, token: Optional[str] = None, wait: float = WAIT_SECONDS) -> None:
        self._transport = AsyncTransport(_address.find(address, token))
        self._wait = wait

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes idle connections. Calls in flight end as they would."""
        self._transport.close()

    async def call(self, name: str, params: Any = None, *, version: Optional[str] = None, timeout: Optional[float] = None,
                   key: Optional[str] = None, thread: Optional[str] = None, built_against: Optional[BuiltAgainst] = None,
                   to: Optional[str] = None, ttl: Optional[float] = None, traceparent: Optional[str] = None,
                   affinity: Optional[str] = None) -> Any:
        """Calls a capability and returns its result; see `Client.call`. Cancelling the task cancels the call."""
        answer = await self.answer(name, params, version=version, timeout=timeout, key=key, thread=thread, built_against=built_against,
                                   to=to, ttl=ttl, traceparent=traceparent, affinity=affinity)
        return answer.value

    async def answer(self, name: str, params: Any = None, *, version: Optional[str] = None, timeout: Optional[float] = None,
                     key: Optional[str] = None, thread: Optional[str] = None, built_against: Optional[BuiltAgainst] = None,
                     to: Optional[str] = None, ttl: Optional[float] = None, traceparent: Optional[str] = None,
                     affinity: Optional[str] = None) -> Answer:
        """Like `call`; returns the result with the call's id, the chosen version, and whether it was recorded before."""
        made = _flows.make_call(name, params, version=version, timeout=timeout, key=key, thread=thread, built_against=built_against,
                                to=to, ttl=ttl, traceparent=traceparent, affinity=affinity)
        try:
            return await self._run(_flows.call(made, self._wait))
        except asyncio.CancelledError:
            await self._abandon(made)
            raise

    def stream(self, name: str, params: Any = None, *, version: Optional[str] = None, timeout: Optional[float] = None,
               key: Optional[str] = None, thread: Optional[str] = None, built_against: Optional[BuiltAgainst] = None,
               to: Optional[str] = None, ttl: Optional[float] = None, traceparent: Optional[str] = None,
               affinity: Optional[str] = None) -> AsyncEvents:
        """Calls a capability and returns its events, the last one being `result`; see `Client.stream`."""
        made = _flows.make_call(name, params, version=version, timeout=timeout, key=key, thread=thread, built_against=built_against,
                                to=to, ttl=ttl, traceparent=traceparent, affinity=affinity)
        return AsyncEvents(self, made, _flows.stream(made, self._wait))

    async def start(self, name: str, params: Any = None, *, version: Optional[str] = None, timeout: Optional[float] = None,
                    key: Optional[str] = None, thread: Optional[str] = None, built_against: Optional[BuiltAgainst] = None,
                    to: Optional[str] = None, ttl: Optional[float] = None, traceparent: Optional[str] = None,
                    affinity: Optional[str] = None) -> str:
        """Starts a call without waiting for it; returns its id. Takes the arguments of `call`."""
        made = _flows.make_call(name, params, version=version, timeout=timeout, key=key, thread=thread, built_against=built_against,
                                to=to, ttl=ttl, traceparent=traceparent, affinity=affinity)
        return await self._run(_flows.start(made, self._wait))

    async def result(self, call: str) -> Any:
        """Waits for the result of a call that was started before. Raises what `call` raises."""
        return await self._run(_flows.wait_for(call, self._wait))

    async def get(self, call: str) -> Any:
        """What the sidecar knows of a call: its state, and its answer once it has one."""
        return await self._run(_flows.get(_flows.path("/v1/calls", call), {}, self._wait))

    async def cancel(self, call: str) -> bool:
        """Cancels a call; returns whether it had not ended before."""
        return await self._run(_flows.cancel(call, self._wait))

    async def calls(self, *, role: Optional[str] = None, state: Optional[str] = None, capability: Optional[str] = None,
                    since: Optional[str] = None, limit: Optional[int] = None) -> List[Any]:
        """The calls that the sidecar knows, newest first. `role` is `made` or `served`."""
        query = {"role": role, "state": state, "capability": capability, "since": since}
        return await self._run(_flows.pages("/v1/calls", "calls", query, limit, self._wait))

    async def list(self, *, namespace: Optional[str] = None, q: Optional[str] = None, limit: Optional[int] = None) -> List[Any]:
        """What may be called: in a namespace, or with words."""
        return await self._run(_flows.pages("/v1/capabilities", "capabilities", {"namespace": namespace, "q": q}, limit, self._wait))

    async def describe(self, id: str) -> Any:
        """One capability with its schemas and providers. A name without a version is its newest one."""
        return await self._run(_flows.get(_flows.path("/v1/capabilities", id), {}, self._wait))

    async def self(self) -> Any:
        """Who the sidecar is: DID, name, version, what it serves, its peers."""
        return await self._run(_flows.get("/v1/self", {}, self._wait))

    async def tools(self, format: str, *, namespace: Optional[str] = None) -> Tools:
        """What may be called, as tool definitions for a language model: `openai`, `anthropic` or `mcp`."""
        query = {"format": checked_format(format), "namespace": namespace}
        return Tools(await self._run(_flows.get("/v1/tools", query, self._wait)))

    async def call_tool(self, tools: Tools, name: str, arguments: Any = None, *, timeout: Optional[float] = None,
                        key: Optional[str] = None, thread: Optional[str] = None) -> Any:
        """Calls the capability behind a tool name, with the arguments that the model gave: an object, or its JSON text."""
        return await self.call(tools.capability(name), tools.params(name, arguments), timeout=timeout, key=key, thread=thread)

    async def _run(self, flow: Flow[T]) -> T:
        """Does what a flow asks for, to its end."""
        done = Done[T]()
        async for _ in _perform(self._transport, flow, done):
            pass
        return done.value

    async def _abandon(self, made: Call) -> None:
        """Tells the sidecar that nobody waits for a call. Goes on when the task is cancelled once more."""
        telling = asyncio.ensure_future(asyncio.wait_for(self._run(_flows.cancel_call(made, CANCEL_SECONDS)), CANCEL_SECONDS))
        try:
            await asyncio.shield(telling)
        except asyncio.CancelledError:
            pass
        except Exception as error:
            log.warning("a call could not be cancelled: %s", error or type(error).__name__)


class AsyncEvents(AsyncIterator[Event]):
    """The events of one call. `result` is its value."""

    def __init__(self, client: AsyncClient, made: Call, flow: Flow[Any]) -> None:
        self._client = client
        self._made = made
        self._done = Done[Any]()
        self._events = _perform(client._transport, flow, self._done)

    @property
    def call(self) -> Optional[str]:
        """The call's id, once the sidecar has told it."""
        return self._made.id

    async def result(self) -> Any:
        """The call's result. Reads to the end of the stream if need be."""
        async for _ in self:
            pass
        return self._done.value

    def __aiter__(self) -> AsyncEvents:
        return self

    async def __anext__(self) -> Event:
        try:
            return await self._events.__anext__()
        except asyncio.CancelledError:
            await self._client._abandon(self._made)
            raise

    async def cancel(self) -> None:
        """Cancels the call and closes the stream."""
        await self.close()
        await self._client._run(_flows.cancel_call(self._made, CANCEL_SECONDS))

    async def close(self) -> None:
        """Closes the stream. The call goes on."""
        await self._events.aclose()

    async def __aenter__(self) -> AsyncEvents:
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()


async def _perform(transport: AsyncTransport, flow: Flow[T], done: Done[T]) -> AsyncGenerator[Event, None]:
    """Does what a flow asks for, and yields the events that it emits."""
    stream: Optional[AsyncStream] = None
    reply: Any = None
    failure: Optional[Exception] = None
    try:
        while True:
            try:
                effect = flow.send(reply) if failure is None else flow.throw(failure)
            except StopIteration as end:
                done.value = end.value
                return
            reply, failure = None, None
            try:
                if isinstance(effect, Exchange):
                    reply = await transport.exchange(effect.request, effect.deadline)
                elif isinstance(effect, Open):
                    if stream is not None:
                        stream.close()
                    stream = await transport.open(effect.request, effect.deadline)
                    reply = stream.response
                elif isinstance(effect, Read):
                    reply = await stream.next(effect.deadline) if stream is not None else None
                elif isinstance(effect, Pause):
                    await asyncio.sleep(effect.seconds)
                else:
                    yield effect.event
            except (TransportError, ValueError) as error:
                failure = error
    finally:
        flow.close()
        if stream is not None:
            stream.close()
