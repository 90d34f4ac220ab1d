"""The conformance driver of this SDK: `capd_driver.py [--async] STEPS`; see sdk/conformance/README.md.

Without `--async` it uses `Client` and handlers that are plain functions, with it `AsyncClient` and coroutines.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import capd
from capd import _json

FOLDER = Path(os.environ["CAPD_CONFORMANCE_DIR"])
WAIT_SECONDS_MAX = 20.0
POLL_SECONDS = 0.003


def set_signal(name: str) -> None:
    (FOLDER / name).touch()


def wait_signal(name: str) -> None:
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not (FOLDER / name).exists():
        if time.monotonic() > end:
            sys.exit(f"the signal {name!r} never came")
        time.sleep(POLL_SECONDS)


def press_ctrl_c(when: str) -> None:
    wait_signal(when)
    os.kill(os.getpid(), signal.SIGINT)


def error_line(error: BaseException) -> Dict[str, Any]:
    if isinstance(error, (KeyboardInterrupt, asyncio.CancelledError)):
        return {"kind": "Cancelled"}
    if not isinstance(error, capd.CapdError):
        raise error
    line = {"kind": type(error).__name__, "code": error.code, "message": error.message, "details": error.details, "call": error.call,
            "retry": error.retry}
    return {name: value for name, value in line.items() if value is not None}


def options(step: Dict[str, Any]) -> Dict[str, Any]:
    """The keyword arguments of a call."""
    given: Dict[str, Any] = {name: step[name] for name in ("version", "key", "thread", "affinity") if name in step}
    if "timeout_ms" in step:
        given["timeout"] = step["timeout_ms"] / 1000
    if "built_against" in step:
        sides = step["built_against"]
        given["built_against"] = capd.BuiltAgainst(*(capd.Schema(**sides[side]) if side in sides else None for side in ("input", "output")))
    return given


class Provider:
    """The agent of a `provide` step."""

    def __init__(self, step: Dict[str, Any], is_async: bool) -> None:
        self.handled: List[Dict[str, Any]] = []
        self.agent = capd.Agent(**({"concurrency": step["concurrency"]} if "concurrency" in step else {}))
        for each in step["capabilities"]:
            script = each.pop("handler")
            handler = self.coroutine(script) if is_async else self.function(script)
            extra = {"input_schema": each.pop("inputSchema", None), "output_schema": each.pop("outputSchema", None)}
            self.agent.add(each.pop("name"), handler, **extra, **each)
        self.agent.start()

    def begin(self, call: capd.Context) -> Dict[str, Any]:
        line = {"id": call.id, "capability": call.capability, "params": call.params, "caller": call.caller, "ended": "failed"}
        self.handled.append(line)
        return line

    def perform(self, verb: str, argument: Any, call: capd.Context) -> None:
        """A verb that does not end the handler."""
        if verb == "progress":
            if "progress_pct" in argument:
                call.progress(argument["progress_pct"])
            else:
                call.status(argument.get("status_text"), eta=argument["eta_ms"] / 1000 if "eta_ms" in argument else None)
        elif verb == "input":
            call.ask(argument["prompt"])
        elif verb == "signal":
            set_signal(argument)
        elif verb == "fail":
            raise capd.CallError(argument["code"], argument["message"], argument.get("details"))
        elif verb == "crash":
            raise ValueError(argument)
        else:
            raise AssertionError(verb)

    def function(self, script: List[Dict[str, Any]]) -> Callable[..., Any]:
        def handler(params: Any, call: capd.Context) -> Any:
            line = self.begin(call)
            for action in script:
                (verb, argument), = action.items()
                if verb in ("return", "echo"):
                    line["ended"] = "returned"
                    return argument if verb == "return" else params
                if verb == "wait":
                    wait_signal(argument)
                elif verb == "wait_cancel":
                    if call.cancelled.wait(WAIT_SECONDS_MAX):
                        line["ended"] = "cancelled"
                        set_signal("cancelled")
                    call.check()
                else:
                    self.perform(verb, argument, call)
            return None

        return handler

    def coroutine(self, script: List[Dict[str, Any]]) -> Callable[..., Any]:
        async def handler(params: Any, call: capd.Context) -> Any:
            line = self.begin(call)
            for action in script:
                (verb, argument), = action.items()
                if verb in ("return", "echo"):
                    line["ended"] = "returned"
                    return argument if verb == "return" else params
                if verb == "wait":
                    await asyncio.to_thread(wait_signal, argument)
                elif verb == "wait_cancel":
                    try:
                        await asyncio.sleep(WAIT_SECONDS_MAX)
                    except asyncio.CancelledError:
                        line["ended"] = "cancelled"
                        set_signal("cancelled")
                        raise
                else:
                    self.perform(verb, argument, call)
            return None

        return handler

    def end(self, by_itself: bool) -> Dict[str, Any]:
        line: Dict[str, Any] = {"handled": self.handled}
        try:
            if by_itself:
                self.agent.join()
            else:
                self.agent.stop()
        except capd.CapdError as error:
            line["error"] = error_line(error)
        return line


class Driver:
    """Performs the steps; `client` is a `Client`, or an `AsyncClient` whose answers are awaited."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async
        self.client: Any = self.new_client()
        self.tools: Optional[capd.Tools] = None
        self.provider: Optional[Provider] = None
        self.provider_step = 0

    def new_client(self, **arguments: Any) -> Any:
        return capd.AsyncClient(**arguments) if self.is_async else capd.Client(**arguments)

    async def value(self, answer: Any) -> Any:
        return await answer if self.is_async else answer

    async def events(self, step: Dict[str, Any], line: Dict[str, Any]) -> None:
        stream = self.client.stream(step["name"], step.get("params"), **options(step))
        seen = line["events"] = []
        if self.is_async:
            async for event in stream:
                seen.append({"kind": event.kind, "data": event.data})
            line["value"] = await stream.result()
        else:
            for event in stream:
                seen.append({"kind": event.kind, "data": event.data})
            line["value"] = stream.result

    async def perform(self, index: int, step: Dict[str, Any], line: Dict[str, Any]) -> None:
        do, client = step["do"], self.client
        if do == "client":
            self.client = self.new_client(wait=step["wait_ms"] / 1000)
        elif do == "stream":
            await self.events(step, line)
        elif do in ("call", "call_async"):
            method = client.call if do == "call" else client.start
            line["value"] = await self.value(method(step["name"], step.get("params"), **options(step)))
        elif do in ("result", "get", "cancel"):
            line["value"] = await self.value(getattr(client, do)(step["call"]))
        elif do in ("calls", "list"):
            given = {name: step[name] for name in ("role", "state", "capability", "namespace", "q") if name in step}
            line["value"] = await self.value(getattr(client, do)(**given))
        elif do == "describe":
            line["value"] = await self.value(client.describe(step["id"]))
        elif do == "self":
            line["value"] = await self.value(client.self())
        elif do == "tools":
            self.tools = await self.value(client.tools(step["format"], namespace=step.get("namespace")))
            line["value"] = self.tools.definitions()
        elif do == "call_tool":
            line["value"] = await self.value(client.call_tool(self.tools, step["tool"], step["arguments"], thread=step.get("thread")))
        elif do == "provide":
            self.provider, self.provider_step = Provider(step, self.is_async), index
        elif do in ("close", "ended") and self.provider is not None:
            line.update(self.provider.end(do == "ended"), step=self.provider_step)
        elif do == "wait":
            wait_signal(step["file"])
        elif do == "signal":
            set_signal(step["file"])
        else:
            line["unsupported"] = f"there is no step {do!r}"

    async def step(self, index: int, step: Dict[str, Any]) -> None:
        line: Dict[str, Any] = {"step": index}
        try:
            if "cancel_when" not in step:
                await self.perform(index, step, line)
            elif self.is_async:
                task = asyncio.ensure_future(self.perform(index, step, line))
                await asyncio.to_thread(wait_signal, step["cancel_when"])
                task.cancel()
                await task
            else:
                threading.Thread(target=press_ctrl_c, args=(step["cancel_when"],), daemon=True).start()
                await self.perform(index, step, line)
        except (capd.CapdError, KeyboardInterrupt, asyncio.CancelledError) as error:
            line["error"] = error_line(error)
        if len(line) > 1:
            sys.stdout.buffer.write(_json.dumps(line) + b"\n")
            sys.stdout.buffer.flush()


async def main(is_async: bool, file: str) -> None:
    driver = Driver(is_async)
    for index, step in enumerate(_json.loads(Path(file).read_bytes())):
        await driver.step(index, step)


if __name__ == "__main__":
    # Whatever started this in the background may have had it ignore Ctrl-C, which is one of the steps.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.argv[1] == "--async":
        asyncio.run(main(True, sys.argv[2]))
    else:
        # Nothing in here waits, so that no event loop stands between the client and Ctrl-C.
        try:
            main(False, sys.argv[1]).send(None)
        except StopIteration:
            pass
