"""What the conformance scenarios do not ask of a provider."""

import asyncio
import contextvars
import dataclasses
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Dict, List, Literal

import pytest
from conftest import Play

import capd

NAME = "com.acme.f"


def calls(*params: Any) -> List[Dict[str, Any]]:
    """The exchange of a stream that gives these calls, and stays open."""
    given = [{"event": "call", "data": {"id": f"c{number}", "capability": NAME, "version": "1.0.0", "params": each, "deadline_ms": 1000,
                                        "caller": "did:key:z", "thread": "turn", "traceparent": None}} for number, each in enumerate(params)]
    ready = {"event": "ready", "data": {"session": "s", "capabilities": [f"{NAME}:1.0.0"], "concurrency": 64}}
    return [{"method": "POST", "path": "/v1/provide", "body": {"$any": True}, "name": "stream", "reply": {"events": [ready, *given, {"wait_closed": True}]}}]


def result(number: int, body: Any) -> Dict[str, Any]:
    return {"method": "POST", "path": f"/v1/provide/s/calls/c{number}/result", "body": body, "name": f"r{number}", "reply": {"status": 204}}


def wait(sidecar: Any, *names: str) -> None:
    for name in names:
        assert sidecar.signals.wait(name, threading.Event()), name


@dataclasses.dataclass
class Translation:
    text: str
    to: str


def test_a_function_gets_values_of_its_types_and_its_result_is_written(play: Play) -> None:
    sidecar = play(*calls({"text": "hello"}, {"text": "hello", "to": "fr"}, None),
                   result(0, {"result": {"text": "hello", "to": "de"}}), result(1, {"result": {"text": "hello", "to": "fr"}}),
                   result(2, {"error": {"code": 4004, "message": {"$any": True}, "details": {
                       "schema_side": "request", "violations": [{"path": "/text", "message": "is required", "keyword": "type"}]}}}))
    agent = capd.Agent(sidecar.address)

    @agent.capability(NAME)
    async def translate(text: str, to: Literal["de", "fr"] = "de") -> Translation:
        return Translation(text, to)

    agent.start()
    wait(sidecar, "r0.answered", "r1.answered", "r2.answered")
    agent.stop()


def test_a_plain_function_runs_in_a_thread_and_sees_its_call(play: Play) -> None:
    sidecar = play(*calls({}), result(0, {"result": ["c0", "did:key:z", "turn", False]}))
    agent = capd.Agent(sidecar.address)

    @agent.capability(NAME)
    def who(call: capd.Context) -> Any:
        return [call.id, call.caller, call.thread, threading.current_thread() is threading.main_thread()]

    agent.start()
    wait(sidecar, "r0.answered")
    agent.stop()


def test_a_result_that_is_no_json_is_the_handlers_fault(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    sidecar = play(*calls({}), result(0, {"error": {"code": 5001, "message": "the handler failed: TypeError"}}))
    agent = capd.Agent(sidecar.address)
    agent.add(NAME, lambda params: object())
    with caplog.at_level(logging.ERROR, "capd"):
        agent.start()
        wait(sidecar, "r0.answered")
        agent.stop()
    assert "object has no form in JSON" in caplog.text


def test_a_call_of_what_is_not_served_is_refused(play: Play) -> None:
    sidecar = play(*calls({}), result(0, {"error": {"code": 4002, "message": {"$any": True}}}))
    agent = capd.Agent(sidecar.address)
    agent.add(NAME, lambda params: None, version="2.0.0")
    agent.start()
    wait(sidecar, "r0.answered")
    agent.stop()


def test_reports_and_the_result_are_posted_in_order(play: Play) -> None:
    reports = [{"method": "POST", "path": "/v1/provide/s/calls/c0/progress", "body": {"progress_pct": percent}, "reply": {"status": 204}} for percent in range(20)]
    sidecar = play(*calls({}), *reports, result(0, {"result": None}))
    agent = capd.Agent(sidecar.address)

    @agent.capability(NAME)
    def work(call: capd.Context) -> None:
        for percent in range(20):
            call.progress(percent)

    agent.start()
    wait(sidecar, "r0.answered")
    agent.stop()
    assert [line for line in sidecar.requests if "calls" in line] == ["POST /v1/provide/s/calls/c0/progress"] * 20 + ["POST /v1/provide/s/calls/c0/result"]


def test_stop_lets_running_calls_end(play: Play) -> None:
    sidecar = play(*calls({}), result(0, {"result": "done"}))
    agent = capd.Agent(sidecar.address)
    begun, go_on = threading.Event(), threading.Event()

    def work(params: Any) -> str:
        begun.set()
        go_on.wait(10)
        return "done"

    agent.add(NAME, work)
    agent.start()
    assert begun.wait(10)
    stopping = threading.Thread(target=agent.stop)
    stopping.start()
    go_on.set()
    stopping.join(10)
    assert not stopping.is_alive()
    wait(sidecar, "r0.answered")


def test_serve_ends_when_its_task_is_cancelled(play: Play) -> None:
    sidecar = play(*calls())

    async def main() -> None:
        agent = capd.Agent(sidecar.address)
        agent.add(NAME, lambda params: None)
        task = asyncio.ensure_future(agent.serve())
        while not agent.wait_ready(0):
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not agent.wait_ready(0)

    asyncio.run(main())
    wait(sidecar, "stream.answered")


def test_context_variables_reach_a_thread(play: Play) -> None:
    sidecar = play(*calls({}), result(0, {"result": "set"}))
    variable = contextvars.ContextVar("variable", default="unset")

    async def main() -> None:
        variable.set("set")
        agent = capd.Agent(sidecar.address)
        agent.add(NAME, lambda params: variable.get())
        task = asyncio.ensure_future(agent.serve())
        while not sidecar.signals.is_set("r0.answered"):
            await asyncio.sleep(0.005)
        agent.stop()
        await task

    asyncio.run(main())


def test_an_agent_without_capabilities_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no capability"):
        capd.Agent("/nowhere").run()


def test_a_capability_is_served_once() -> None:
    agent = capd.Agent("/nowhere")
    agent.add(NAME, lambda params: None)
    agent.add(NAME, lambda params: None, version="2.0.0")
    with pytest.raises(ValueError, match="com.acme.f:1.0.0 is served already"):
        agent.add(NAME, lambda params: None)


def test_the_declaration_is_that_of_capabilities_yaml() -> None:
    agent = capd.Agent("/nowhere")
    agent.add(NAME, lambda params: None, idempotent=True, timeout=1.5, permissions=["network:read"], description="Does.",
              input_schema={"type": "object"}, rateLimit={"requests": 1, "period": "1m"})
    assert agent.declarations() == [{
        "name": NAME, "version": "1.0.0", "description": "Does.", "idempotent": True, "timeoutMs": 1500, "permissions": ["network:read"],
        "rateLimit": {"requests": 1, "period": "1m"}, "inputSchema": {"type": "object"}}]


def test_progress_beyond_its_bounds_is_refused() -> None:
    call = capd.Context("c", "a.b.c:1.0.0", None, None, None, None, None, lambda what, body: None)
    for percent in (-1, 101, 0.5):
        with pytest.raises(ValueError, match="percent"):
            call.progress(percent)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="status"):
        call.status()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_ends_well_at_a_signal(play: Play, number: int) -> None:
    sidecar = play(*calls({}), result(0, {"result": 1}))
    program = f"import capd; agent = capd.Agent({sidecar.address!r}); agent.add({NAME!r}, lambda params: 1); agent.run()"
    environment = {**os.environ, "PYTHONPATH": str(Path(capd.__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.PIPE) as process:
        wait(sidecar, "r0.answered")
        process.send_signal(number)
        assert process.wait(20) == 0
        assert process.stderr is not None and process.stderr.read() == b""
    wait(sidecar, "stream.answered")
