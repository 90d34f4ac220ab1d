"""The blocking client."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Any, Generator, Iterator, List, Optional, TypeVar

from . import _address, _flows
from ._effects import Done, Exchange, Flow, Open, Pause, Read
from ._flows import Answer, BuiltAgainst, Call
from ._http import TransportError
from ._patience import WAIT_SECONDS
from ._sse import Event
from ._sync import SyncStream, SyncTransport
from ._tools import Tools, checked_format

T = TypeVar("T")

log = logging.getLogger("capd")

#: How long a user who has cancelled waits until the sidecar knows.
CANCEL_SECONDS = 5.0


class Client:
    """Calls capabilities through the sidecar beside this agent. Threads may share one client.

    ::

        with Client() as client:
            client.call("com.acme.translate", {"text": "hello"}, version=">=1.0.0 <2.0.0")

    `address` is the path of the sidecar's socket, or `http://127.0.0.1:PORT` with `token`. Without it the environment's
    `CAPD_SOCKET` or `CAPD_HTTP` say where it is, else it is where capd puts it by itself. `wait` is how many seconds a
    request waits for a sidecar that cannot be reached, such as one that starts later.
    """

    def __init__(self, address: Optional[str] = None, *, token: Optional[str] = None, wait: float = WAIT_SECONDS) -> None:
        self._transport = SyncTransport(_address.find(address, token))
        self._wait = wait

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        """Closes idle connections. Calls in flight end as they would."""
        self._transport.close()

    def call(self, name: str, params: Any = None, *, version: Optional[str] = None, timeout: Optional[float] = None,
             key: Optional[str] = None, thread: Optional[str] = None, built_against: Optional[BuiltAgainst] = None,
             to: Optional[str] = None, ttl: Optional[float] = None, traceparent: Optional[str] = None,
             affinity: Optional[str] = None) -> Any:
        """Calls a capability and returns its result.

        - `name`: `com.acme.translate`, or an id such as `com.acme.translate:1.2.0`.
        - `params`: any JSON value; dataclasses, enums, `Decimal`, `UUID`, `datetime` and pydantic models are written as one.
        - `version`: a range, `>=1.0.0 <2.0.0`. Without it the newest version is called.
        - `timeout`: seconds. Without it the time that the capability declares.
        - `key`: an idempotency key. The same key and params never run twice: they join the call, or give its recorded
          result. Without it each call gets a key of its own, under which it is retried when a connection breaks.
        - `thread`: the turn of a conversation that the call belongs to.
        - `built_against`: the schemas that the caller was generated from; the call is refused with 4902 when the provider's
          do not fit them.
        - `to`: the provider's DID, where only that one will do.
        - `ttl`: how many seconds the sidecars remember the call and its key, which bounds the call's time too. Unless set a day
          for your key, an hour without one.
        - `affinity`: idempotent calls with the same text, 1 to 255 bytes, go to the same provider.

        Raises `Refused`, `Failed`, `OutcomeUnknown` or `Pending`. Ctrl-C cancels the call.
        """
        return self.answer(name, params, version=version, timeout=timeout, key=key, thread=thread, built_against=built_against,
                           to=to, ttl=ttl, traceparent=traceparent, affinity=affinity).value

    def answer(self, name: str, params: Any = None, *, version: Optional[str] = None, timeout: Optional[float] = None,
               key: Optional[str] = None, thread: Optional[str] = None, built_against: Optional[BuiltAgainst] = None,
               to: Optional[str] = None, ttl: Optional[float] = None, traceparent: Optional[str] = None,
               affinity: Optional[str] = None) -> Answer:
        """Like `call`; returns the result with the call's id, the chosen version, and whether it was recorded before."""
        made = _flows.make_call(name, params, version=version, timeout=timeout, key=key, thread=thread, built_against=built_against,
                                to=to, ttl=ttl, traceparent=traceparent, affinity=affinity)
        try:
            return self._run(_flows.call(made, self._wait))
        except KeyboardInterrupt:
            self._abandon(made)
            raise

    def stream(self, name: str, params: Any = None, *, version: Optional[str] = None, timeout: Optional[float] = None,
               key: Optional[str] = None, thread: Optional[str] = None, built_against: Optional[BuiltAgainst] = None,
               to: Optional[str] = None, ttl: Optional[float] = None, traceparent: Optional[str] = None,
               affinity: Optional[str] = None) -> Stream:
        """Calls a capability and returns its events, the last one being `result`.

        A stream that breaks resumes where it broke. Takes the arguments of `call`. Leaving the loop early closes the
        stream and leaves the call running; `Stream.cancel` ends it.
        """
        made = _flows.make_call(name, params, version=version, timeout=timeout, key=key, thread=thread, built_against=built_against,
                                to=to, ttl=ttl, traceparent=traceparent, affinity=affinity)
        return Stream(self, made, _flows.stream(made, self._wait))

    def start(self, name: str, params: Any = None, *, version: Optional[str] = None, timeout: Optional[float] = None,
              key: Optional[str] = None, thread: Optional[str] = None, built_against: Optional[BuiltAgainst] = None,
              to: Optional[str] = None, ttl: Optional[float] = None, traceparent: Optional[str] = None,
              affinity: Optional[str] = None) -> str:
        """Starts a call without waiting for it; returns its id. Takes the arguments of `call`."""
        made = _flows.make_call(name, params, version=version, timeout=timeout, key=key, thread=thread, built_against=built_against,
                                to=to, ttl=ttl, traceparent=traceparent, affinity=affinity)
        return self._run(_flows.start(made, self._wait))

    def result(self, call: str) -> Any:
        """Waits for the result of a call that was started before. Raises what `call` raises."""
        return self._run(_flows.wait_for(call, self._wait))

    def get(self, call: str) -> Any:
        """What the sidecar knows of a call: its state, and its answer once it has one."""
        return self._run(_flows.get(_flows.path("/v1/calls", call), {}, self._wait))

    def cancel(self, call: str) -> bool:
        """Cancels a call; returns whether it had not ended before."""
        return self._run(_flows.cancel(call, self._wait))

    def calls(self, *, role: Optional[str] = None, state: Optional[str] = None, capability: Optional[str] = None,
              since: Optional[str] = None, limit: Optional[int] = None) -> List[Any]:
        """The calls that the sidecar knows, newest first. `role` is `made` or `served`."""
        query = {"role": role, "state": state, "capability": capability, "since": since}
        return self._run(_flows.pages("/v1/calls", "calls", query, limit, self._wait))

    def list(self, *, namespace: Optional[str] = None, q: Optional[str] = None, limit: Optional[int] = None) -> List[Any]:
        """What may be called: in a namespace, or with words."""
        return self._run(_flows.pages("/v1/capabilities", "capabilities", {"namespace": namespace, "q": q}, limit, self._wait))

    def describe(self, id: str) -> Any:
        """One capability with its schemas and providers. A name without a version is its newest one."""
        return self._run(_flows.get(_flows.path("/v1/capabilities", id), {}, self._wait))

    def self(self) -> Any:
        """Who the sidecar is: DID, name, version, what it serves, its peers."""
        return self._run(_flows.get("/v1/self", {}, self._wait))

    def tools(self, format: str, *, namespace: Optional[str] = None) -> Tools:
        """What may be called, as tool definitions for a language model: `openai`, `anthropic` or `mcp`."""
        query = {"format": checked_format(format), "namespace": namespace}
        return Tools(self._run(_flows.get("/v1/tools", query, self._wait)))

    def call_tool(self, tools: Tools, name: str, arguments: Any = None, *, timeout: Optional[float] = None, key: Optional[str] = None,
                  thread: Optional[str] = None) -> Any:
        """Calls the capability behind a tool name, with the arguments that the model gave: an object, or its JSON text."""
        return self.call(tools.capability(name), tools.params(name, arguments), timeout=timeout, key=key, thread=thread)

    def _run(self, flow: Flow[T]) -> T:
        """Does what a flow asks for, to its end."""
        for _ in _perform(self._transport, flow, done := Done[T]()):
            pass
        return done.value

    def _abandon(self, made: Call) -> None:
        """Tells the sidecar that nobody waits for a call."""
        try:
            self._run(_flows.cancel_call(made, CANCEL_SECONDS))
        except Exception as error:
            log.warning("a call could not be cancelled: %s", error)


class Stream(Iterator[Event]):
    """The events of one call. `result` is its value once the stream has been read to its end."""

    def __init__(self, client: Client, made: Call, flow: Flow[Any]) -> None:
        self._client = client
        self._made = made
        self._done = Done[Any]()
        self._events = _perform(client._transport, flow, self._done)

    @property
    def call(self) -> Optional[str]:
        """The call's id, once the sidecar has told it."""
        return self._made.id

    @property
    def result(self) -> Any:
        """The call's result. Reads to the end of the stream if need be."""
        for _ in self:
            pass
        return self._done.value

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Event:
        try:
            return next(self._events)
        except KeyboardInterrupt:
            self._client._abandon(self._made)
            raise

    def cancel(self) -> None:
        """Cancels the call and closes the stream."""
        self.close()
        self._client._run(_flows.cancel_call(self._made, CANCEL_SECONDS))

    def close(self) -> None:
        """Closes the stream. The call goes on."""
        self._events.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()


def _perform(transport: SyncTransport, flow: Flow[T], done: Done[T]) -> Generator[Event, None, None]:
    """Does what a flow asks for, and yields the events that it emits."""
    stream: Optional[SyncStream] = None
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
                    reply = transport.exchange(effect.request, effect.deadline)
                elif isinstance(effect, Open):
                    if stream is not None:
                        stream.close()
                    stream = transport.open(effect.request, effect.deadline)
                    reply = stream.response
                elif isinstance(effect, Read):
                    reply = stream.next(effect.deadline) if stream is not None else None
                elif isinstance(effect, Pause):
                    time.sleep(effect.seconds)
                else:
                    yield effect.event
            except (TransportError, ValueError) as error:
                failure = error
    finally:
        flow.close()
        if stream is not None:
            stream.close()
