"""Serves capabilities through the sidecar beside this agent."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Literal, Optional, Sequence, TypeVar

from . import _address, _json
from ._async import AsyncStream, AsyncTransport
from ._capability import Capability, Handler, from_hints, from_schemas
from ._http import Request, TransportError
from ._patience import Backoff, _retry_after
from ._problem import of_response
from ._session import Session
from .errors import CapdError, Refused

F = TypeVar("F", bound=Callable[..., Any])

log = logging.getLogger("capd")

#: The sidecar sends a comment every 10 s: a stream that is silent for so long is dead.
SILENCE_SECONDS_MAX = 35.0
DRAIN_SECONDS = 10.0


class Agent:
    """An agent that other agents can call.

    ::

        agent = Agent()

        @agent.capability("com.acme.translate", version="1.2.0", idempotent=True)
        async def translate(text: str, to: Literal["de", "fr"] = "de") -> Translation:
            ...

        agent.run()

    The agent opens no port: it asks the sidecar for its calls. It waits for a sidecar that starts later, and declares
    everything again when the connection breaks. `address` and `token` are those of `Client`. `concurrency` is how many calls
    run at once; more wait in the sidecar.
    """

    def __init__(self, address: Optional[str] = None, *, token: Optional[str] = None, concurrency: int = 64) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency: {concurrency} is below 1")
        self._address = _address.find(address, token)
        self._concurrency = concurrency
        self._capabilities: dict[str, Capability] = {}
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._stopping: Optional[asyncio.Event] = None
        self._session: Optional[Session] = None
        self._is_stopped = False
        self._is_ready = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._error: Optional[BaseException] = None
        self._lock = threading.Lock()

    def capability(self, name: str, *, version: str = "1.0.0", description: Optional[str] = None, idempotent: bool = False,
                   idempotency: Optional[Literal["by-id"]] = None, timeout: Optional[float] = None,
                   permissions: Sequence[str] = (), **more: Any) -> Callable[[F], F]:
        """Serves a function. Its type hints are the schemas, its docstring the description.

        The params are an object with a member for each parameter. A function with one parameter, a dataclass, TypedDict or
        pydantic model, takes that as its params. A parameter of the type `Context` gets the call itself. Functions that are no
        coroutines run in threads.

        `idempotency="by-id"` says that all providers of this version remember the ids of calls in one store that they share, and
        answer a call whose id they have seen with its first outcome. The key is the pair of `Context.caller` and `Context.id`.

        `timeout` is in seconds. `more` are further keys of a declaration as in `capabilities.yaml`, such as `rateLimit`.

        Raises `SchemaError` with the place for a type that the strict profile cannot say.
        """
        declaration = _declaration(name, version, description, idempotent, idempotency, timeout, permissions, more)

        def register(function: F) -> F:
            self._register(from_hints(declaration, function))
            return function

        return register

    def add(self, name: str, function: Handler, *, version: str = "1.0.0", input_schema: Any = None, output_schema: Any = None,
            description: Optional[str] = None, idempotent: bool = False, idempotency: Optional[Literal["by-id"]] = None,
            timeout: Optional[float] = None, permissions: Sequence[str] = (), **more: Any) -> None:
        """Serves a function with schemas of your own, or none. It is called with the params as they are, and with the
        `Context` if it has a second parameter."""
        declaration = _declaration(name, version, description, idempotent, idempotency, timeout, permissions, more)
        if input_schema is not None:
            declaration["inputSchema"] = input_schema
        if output_schema is not None:
            declaration["outputSchema"] = output_schema
        self._register(from_schemas(declaration, function))

    def declarations(self) -> list[dict[str, Any]]:
        """What is declared to the sidecar, as in `capabilities.yaml`."""
        return [capability.declaration for capability in self._capabilities.values()]

    def run(self) -> None:
        """Serves until SIGINT, SIGTERM or `stop`. Raises what `serve` raises."""
        asyncio.run(self._run_until_signal())

    async def serve(self) -> None:
        """Serves until `stop` is called or the task is cancelled.

        Raises `Refused` when the sidecar refuses the declaration, which is then the same each time.
        """
        if not self._capabilities:
            raise ValueError("this agent has no capability to serve")
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        if self._is_stopped:
            return
        transport = AsyncTransport(self._address)
        pool = ThreadPoolExecutor(self._concurrency, "capd-handler")
        serving = asyncio.ensure_future(self._serve(transport, pool))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not serving.done() and self._session is not None:
                await self._session.drained(DRAIN_SECONDS)
        finally:
            stopping.cancel()
            serving.cancel()
            await asyncio.wait((serving,))
            self._is_ready.clear()
            transport.close()
            pool.shutdown(wait=False)
        if not serving.cancelled():
            serving.result()

    def start(self) -> None:
        """Serves in a thread of its own; `stop` ends it. For programs that are not built around asyncio."""
        def serve() -> None:
            try:
                asyncio.run(self.serve())
            except BaseException as error:
                self._error = error
                log.error("the agent has ended: %s", error)

        self._thread = threading.Thread(target=serve, name="capd-agent", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops serving: lets running calls end for a while, and withdraws what was declared.

        Can be called from any thread. After `start` it waits for the end, and raises the error that ended the agent.
        """
        with self._lock:
            self._is_stopped = True
        if self._loop is not None and self._stopping is not None and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._stopping.set)
            except RuntimeError:
                pass
        if self._thread is not None and self._thread is not threading.current_thread():
            self.join()

    def join(self) -> None:
        """After `start`: waits until the agent has ended. Raises the error that ended it, once."""
        if self._thread is None:
            raise RuntimeError("this agent was not started")
        self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait_ready(self, timeout: Optional[float] = None) -> bool:
        """Waits until the sidecar has taken the declaration; whether it has in that many seconds."""
        return self._is_ready.wait(timeout)

    def _register(self, capability: Capability) -> None:
        if capability.id in self._capabilities:
            raise ValueError(f"{capability.id} is served already")
        self._capabilities[capability.id] = capability

    async def _run_until_signal(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(self.serve())
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, self.stop)
            except (NotImplementedError, RuntimeError, ValueError):
                # Windows has none, and neither has a thread that is not the main one.
                pass
        await task

    async def _serve(self, transport: AsyncTransport, pool: ThreadPoolExecutor) -> None:
        """Declares, serves, and does so again whenever the stream ends."""
        backoff = Backoff()
        body = _json.dumps({"capabilities": self.declarations(), "concurrency": self._concurrency})
        is_told = False
        while True:
            request = Request("POST", "/v1/provide", {"Content-Type": "application/json", "Accept": "text/event-stream"}, body)
            try:
                stream = await transport.open(request, time.monotonic() + SILENCE_SECONDS_MAX)
            except TransportError as error:
                if not is_told:
                    is_told = True
                    log.warning("%s; trying again until it is there", error)
                await asyncio.sleep(backoff.pause())
                continue
            is_told = False
            if stream.response.status >= 300 or not stream.response.is_stream:
                await asyncio.sleep(_pause_after(of_response(stream.response), _retry_after(stream.response), backoff))
                continue
            try:
                await self._read(transport, pool, stream, backoff)
            finally:
                stream.close()
            await asyncio.sleep(backoff.pause())

    async def _read(self, transport: AsyncTransport, pool: ThreadPoolExecutor, stream: AsyncStream, backoff: Backoff) -> None:
        """Serves one session, to the end of its stream."""
        session = self._session = Session(transport, pool, self._capabilities)
        try:
            while not stream.has_ended:
                event = stream.take()
                if event is None:
                    await stream.bytes_came(SILENCE_SECONDS_MAX)
                elif session.handle(event):
                    backoff.reset()
                    self._is_ready.set()
                    log.info("serving %s", ", ".join(self._capabilities))
            log.warning("the sidecar has ended the session")
        except TransportError as error:
            log.warning("the session has ended: %s", error)
        except ValueError as error:
            log.error("the sidecar's stream is not readable: %s", error)
        finally:
            self._is_ready.clear()
            self._session = None
            await session.end()


def _pause_after(error: CapdError, asked: Optional[float], backoff: Backoff) -> float:
    """The pause before the declaration is sent again. Raises the error when it is final."""
    if isinstance(error, Refused) and (asked is None or error.retry == "no"):
        raise error
    log.warning("the sidecar does not take the declaration yet: %s", error)
    return backoff.pause() if asked is None else asked


def _declaration(name: str, version: str, description: Optional[str], idempotent: bool,
                 idempotency: Optional[Literal["by-id"]], timeout: Optional[float],
                 permissions: Sequence[str], more: dict[str, Any]) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": name, "version": version}
    if description is not None:
        declaration["description"] = description
    if idempotent:
        declaration["idempotent"] = True
    if idempotency is not None:
        declaration["idempotency"] = idempotency
    if timeout is not None:
        declaration["timeoutMs"] = round(timeout * 1000)
    if permissions:
        declaration["permissions"] = list(permissions)
    return {**declaration, **more}
