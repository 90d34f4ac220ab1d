"""An agent beside a `capd`: what the tests against real sidecars call, and how they hold it up."""

import asyncio
import dataclasses
import threading
import time
from typing import Any, Callable, Dict, List, Literal, Optional

from capd_process import PATIENCE_SECONDS, Capd

import capd


@dataclasses.dataclass
class Side:
    """An agent's sidecar, what it has run, and how its handlers are held up."""

    sidecar: Capd
    agent: Optional[capd.Agent] = None
    runs: List[Any] = dataclasses.field(default_factory=list)
    begun: threading.Event = dataclasses.field(default_factory=threading.Event)
    go_on: threading.Event = dataclasses.field(default_factory=threading.Event)
    cancelled: threading.Event = dataclasses.field(default_factory=threading.Event)


def serve(side: Side, *, idempotent: bool = False) -> capd.Agent:
    """The agent of the provider's side."""
    agent = side.agent = capd.Agent(side.sidecar.socket)

    @agent.capability("com.acme.translate", version="1.2.0", idempotent=True)
    async def translate(text: str, to: Literal["de", "fr"] = "de") -> Dict[str, str]:
        return {"text": f"{text} ({to})"}

    agent.add("com.acme.echo", lambda params: params, idempotent=True)

    def order(params: Any, call: capd.Context) -> Any:
        side.runs.append(params)
        side.begun.set()
        side.go_on.wait(PATIENCE_SECONDS)
        return {"order": len(side.runs)}

    agent.add("com.acme.order", order, idempotent=idempotent)

    async def wait(params: Any, call: capd.Context) -> None:
        call.progress(40)
        side.begun.set()
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        except asyncio.CancelledError:
            side.cancelled.set()
            raise

    agent.add("com.acme.wait", wait)

    @agent.capability("com.acme.report")
    async def report(call: capd.Context) -> int:
        call.status("reading")
        call.progress(40)
        call.ask("Which?")
        return 42

    @agent.capability("com.acme.fail")
    def fail(kind: str) -> None:
        if kind == "mine":
            raise capd.CallError(6001, "no such language", {"language": "xx", "limit": 9007199254740993})
        raise RuntimeError("password is hunter2")

    agent.start()
    assert agent.wait_ready(PATIENCE_SECONDS)
    return agent


def wait_served(caller: Side, name: str = "com.acme.fail") -> None:
    """Waits until the caller's sidecar knows what the peer serves."""
    until(lambda: any(each["id"].startswith(name) for each in listed(caller)))


def listed(caller: Side) -> List[Any]:
    with capd.Client(caller.sidecar.socket) as client:
        return client.list(namespace="com.acme")


def until(holds: Callable[[], bool]) -> None:
    """Waits for a condition that only asking shows."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)
