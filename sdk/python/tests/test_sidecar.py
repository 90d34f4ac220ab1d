"""The SDK against real sidecars: an agent and its `capd` on each side, joined by a peer link."""

import asyncio
import dataclasses
import datetime
import hashlib
import os
import sys
import threading
import types
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Callable, Dict, Iterator, List, Literal, Optional, Set, Union

import pytest
from capd_process import PATIENCE_SECONDS, Capd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sides import Side, serve, until, wait_served
from test_hints import Colour, Partial
from test_json import TEXT, exact
from test_pydantic import Letter

import capd

pytestmark = pytest.mark.skipif("CAPD_BIN" not in os.environ, reason="CAPD_BIN, the path of a capd, is not set: NOTHING WAS RUN AGAINST A REAL SIDECAR")


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[List[Side]]:
    """A caller's side and a provider's side."""
    provider = Capd(tmp_path / "provider").start()
    caller = Capd(tmp_path / "caller", (provider,)).start()
    both = [Side(caller), Side(provider)]
    serve(both[1])
    wait_served(both[0])
    yield both
    both[1].go_on.set()
    for side in both:
        if side.agent is not None:
            side.agent.stop()
        side.sidecar.kill()


def test_a_call_reaches_the_peers_agent_and_its_result_comes_back(sides: List[Side]) -> None:
    with capd.Client(sides[0].sidecar.socket) as client:
        assert client.call("com.acme.translate", {"text": "hello"}, version=">=1.0.0 <2.0.0") == {"text": "hello (de)"}
        answer = client.answer("com.acme.translate:1.2.0", {"text": "hello", "to": "fr"})
        assert (answer.value, answer.capability, answer.replayed) == ({"text": "hello (fr)"}, "com.acme.translate:1.2.0", False)
        assert answer.call is not None
        # And from the agent beside the provider's own sidecar.
    with capd.Client(sides[1].sidecar.http, token=sides[1].sidecar.token) as client:
        assert client.call("com.acme.translate", {"text": "hello"}) == {"text": "hello (de)"}


def test_each_outcome_is_its_exception(sides: List[Side]) -> None:
    with capd.Client(sides[0].sidecar.socket) as client:
        with pytest.raises(capd.Refused) as refused:
            client.call("com.acme.translate", {"text": "hello", "to": "es"})
        assert refused.value.code == 4004 and refused.value.details["violations"][0]["path"] == "/to"
        with pytest.raises(capd.Refused) as refused:
            client.call("com.acme.nothing")
        assert refused.value.code == 4002
        with pytest.raises(capd.Refused) as refused:
            client.call("com.acme.translate", {"text": "hello"}, version="7.0.0")
        assert refused.value.code == 4003
        with pytest.raises(capd.Failed) as failed:
            client.call("com.acme.fail", {"kind": "mine"})
        assert (failed.value.code, failed.value.message) == (6001, "no such language")
        assert failed.value.details == {"language": "xx", "limit": 9007199254740993} and failed.value.call is not None
        with pytest.raises(capd.Failed) as failed:
            client.call("com.acme.fail", {"kind": "crash"})
        assert failed.value.code == 5001 and "hunter2" not in str(failed.value)


def test_a_stream_tells_how_the_call_goes(sides: List[Side]) -> None:
    with capd.Client(sides[0].sidecar.socket) as client, client.stream("com.acme.report") as stream:
        events = list(stream)
        assert stream.result == 42
    kinds = [event.kind for event in events]
    assert kinds[0] == "accepted" and kinds[-1] == "result" and kinds.count("result") == 1
    told = {event.kind: event.data for event in events}
    assert told["progress"]["progress_pct"] == 40 and told["processing"]["status_text"] == "reading" and told["input_required"]["prompt"] == "Which?"


def test_cancelling_the_task_cancels_the_handler(sides: List[Side]) -> None:
    async def ask() -> None:
        async with capd.AsyncClient(sides[0].sidecar.socket) as client:
            task = asyncio.ensure_future(client.call("com.acme.wait"))
            await asyncio.get_running_loop().run_in_executor(None, sides[1].begun.wait, PATIENCE_SECONDS)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(ask())
    assert sides[1].cancelled.wait(PATIENCE_SECONDS)


def test_cancelling_by_id_ends_the_call_with_4901(sides: List[Side]) -> None:
    with capd.Client(sides[0].sidecar.socket) as client:
        call = client.start("com.acme.wait")
        assert sides[1].begun.wait(PATIENCE_SECONDS)
        assert client.get(call)["state"] == "running"
        assert client.cancel(call)
        with pytest.raises(capd.Failed) as failed:
            client.result(call)
        assert failed.value.code == 4901
        assert not client.cancel(call)
        assert call in [each["id"] for each in client.calls(role="made")]
    assert sides[1].cancelled.wait(PATIENCE_SECONDS)


def test_a_timeout_is_the_calls_one_result_or_pending(sides: List[Side]) -> None:
    with capd.Client(sides[0].sidecar.socket) as client, pytest.raises((capd.Failed, capd.Pending)) as caught:
        client.call("com.acme.wait", timeout=0.3)
    assert caught.value.code == 5003
    assert sides[1].cancelled.wait(PATIENCE_SECONDS)


def test_a_key_runs_once(sides: List[Side]) -> None:
    sides[1].go_on.set()
    with capd.Client(sides[0].sidecar.socket) as client:
        first = client.answer("com.acme.order", {"n": 1}, key="order-17")
        second = client.answer("com.acme.order", {"n": 1}, key="order-17")
        assert first.value == second.value == {"order": 1}
        assert (first.replayed, second.replayed) == (False, True)
        with pytest.raises(capd.Refused) as refused:
            client.call("com.acme.order", {"n": 2}, key="order-17")
        assert (refused.value.code, refused.value.status) == (4001, 422)
    assert sides[1].runs == [{"n": 1}]


def test_a_key_that_is_asked_for_twice_at_once_runs_once(sides: List[Side]) -> None:
    async def ask() -> List[Any]:
        async with capd.AsyncClient(sides[0].sidecar.socket) as client:
            calls = [asyncio.ensure_future(client.call("com.acme.order", 1, key="k")) for _ in range(8)]
            await asyncio.get_running_loop().run_in_executor(None, sides[1].begun.wait, PATIENCE_SECONDS)
            sides[1].go_on.set()
            return await asyncio.gather(*calls)

    assert asyncio.run(ask()) == [{"order": 1}] * 8
    assert sides[1].runs == [1]


def in_thread(work: Callable[[], Any]) -> "tuple[threading.Thread, List[Any]]":
    """Runs it aside; what came of it."""
    outcome: List[Any] = []

    def run() -> None:
        try:
            outcome.append(work())
        except capd.CapdError as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def test_the_callers_sidecar_dies_under_a_call_which_still_runs_once(sides: List[Side]) -> None:
    with capd.Client(sides[0].sidecar.socket) as client:
        thread, outcome = in_thread(lambda: client.call("com.acme.order", 1, key="k"))
        assert sides[1].begun.wait(PATIENCE_SECONDS)
        sides[0].sidecar.kill()
        sides[0].sidecar.start()
        sides[1].go_on.set()
        thread.join(PATIENCE_SECONDS)
        assert outcome == [{"order": 1}] and sides[1].runs == [1]
        assert client.call("com.acme.order", 1, key="k") == {"order": 1} and sides[1].runs == [1]


def test_the_providers_sidecar_dies_under_a_call_whose_outcome_is_then_unknown(sides: List[Side]) -> None:
    with capd.Client(sides[0].sidecar.socket) as client:
        thread, outcome = in_thread(lambda: client.call("com.acme.order", 1, key="k"))
        assert sides[1].begun.wait(PATIENCE_SECONDS)
        sides[1].sidecar.kill()
        sides[1].sidecar.start()
        sides[1].go_on.set()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
        assert isinstance(outcome[0], capd.OutcomeUnknown) and outcome[0].code == 5902
        # Asked again, it says the same, and nothing runs.
        with pytest.raises(capd.OutcomeUnknown):
            client.call("com.acme.order", 1, key="k")
    assert sides[1].runs == [1]


def test_a_provider_declares_again_when_its_sidecar_is_back(sides: List[Side]) -> None:
    sides[1].go_on.set()
    for _ in range(2):
        sides[1].sidecar.kill()
        sides[1].sidecar.start()
    agent = sides[1].agent
    assert agent is not None
    with capd.Client(sides[1].sidecar.socket) as client:
        until(lambda: agent.wait_ready(0) and any(each["id"].startswith("com.acme.fail") for each in client.list()))
        assert client.call("com.acme.order", 1) == {"order": 1}


def test_agents_and_sidecars_start_in_any_order(tmp_path: Path) -> None:
    side = Side(Capd(tmp_path / "later"))
    agent = capd.Agent(side.sidecar.socket)
    agent.add("com.acme.echo", lambda params: params)
    agent.start()
    client = capd.Client(side.sidecar.socket)
    thread, outcome = in_thread(client.self)
    side.sidecar.start()
    try:
        assert agent.wait_ready(PATIENCE_SECONDS)
        thread.join(PATIENCE_SECONDS)
        assert outcome[0]["did"] == side.sidecar.announcement["did"]
        assert client.call("com.acme.echo", 1) == 1
    finally:
        client.close()
        agent.stop()
        side.sidecar.kill()


def test_closing_the_agent_withdraws_what_it_serves(sides: List[Side]) -> None:
    agent = sides[1].agent
    assert agent is not None
    agent.stop()
    sides[1].agent = None
    with capd.Client(sides[1].sidecar.socket) as client:
        until(lambda: client.list() == [])
        with pytest.raises(capd.Refused) as refused:
            client.call("com.acme.echo", 1, timeout=5)
    assert refused.value.code == 4002


def test_a_declaration_that_the_sidecar_refuses_ends_the_agent(sides: List[Side]) -> None:
    agent = capd.Agent(sides[1].sidecar.socket)
    agent.add("com.acme.bad", lambda params: params, input_schema={"type": "string", "format": "phone"})
    with pytest.raises(capd.Refused, match="phone"):
        agent.run()


@dataclasses.dataclass
class Tree:
    """A tree."""

    value: int
    children: "List[Tree]"
    weight: Optional[Decimal] = None


def test_schemas_from_hints_are_within_the_strict_profile_of_the_sidecar(sides: List[Side]) -> None:
    agent = capd.Agent(sides[1].sidecar.socket)

    @agent.capability("com.acme.tree")
    def tree(root: Tree) -> Tree:
        return root

    @agent.capability("com.acme.all")
    def everything(
        a: List[int], b: Dict[str, Optional[bool]], c: Literal["x", 1], d: Colour, e: Set[str], f: uuid.UUID, g: datetime.datetime,
        h: Annotated[str, "A word.", capd.Keywords(pattern="^[a-z]+$", maxLength=3)], i: Partial, j: Letter, k: Any, m: Union[int, str] = 1,
    ) -> List[Any]:
        return [a, b, c, d, sorted(e), f, g, h, i, j.to, k, m]

    agent.start()
    assert agent.wait_ready(PATIENCE_SECONDS)
    with capd.Client(sides[1].sidecar.socket) as client:
        value = {"value": 1, "children": [{"value": 2, "children": [], "weight": 0.1}], "weight": None}
        assert client.call("com.acme.tree", value)["children"][0] == {"value": 2, "children": [], "weight": 0.1}
        with pytest.raises(capd.Refused):
            client.call("com.acme.tree", {"value": 1, "children": [{"value": "x", "children": []}]})
        params = {"a": [1], "b": {"k": None}, "c": 1, "d": Colour.BLUE, "e": {"y", "x"}, "f": uuid.UUID(int=1),
                  "g": datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc), "h": "abc", "i": {"id": 1}, "j": {"to": "a"}, "k": None}
        assert client.call("com.acme.all", params) == [
            [1], {"k": None}, 1, "blue", ["x", "y"], "00000000-0000-0000-0000-000000000001", "2026-01-02T00:00:00+00:00", "abc", {"id": 1}, "a", None, 1]
        with pytest.raises(capd.Refused) as refused:
            client.call("com.acme.all", {**params, "h": "abcd"})
        assert [each["path"] for each in refused.value.details["violations"]] == ["/h"]
        # What only the model knows is refused by the handler's side, with the same code.
        with pytest.raises(capd.Failed) as failed:
            client.call("com.acme.all", {**params, "j": {"to": "nobody"}})
        assert (failed.value.code, failed.value.details["violations"][0]["path"]) == (4004, "/j/to")
    agent.stop()


NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(st.none() | st.booleans() | NUMBERS | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(value=VALUES)
def test_every_number_keeps_its_digits_and_every_text_its_code_points(sides: List[Side], value: Any) -> None:
    with capd.Client(sides[1].sidecar.socket) as client:
        assert exact(client.call("com.acme.echo", value, ttl=60)) == exact(value)


def test_an_integer_that_the_wire_cannot_hold_is_refused_and_not_rounded(sides: List[Side]) -> None:
    with capd.Client(sides[0].sidecar.socket) as client, pytest.raises(capd.Refused) as refused:
        client.call("com.acme.echo", 2**64)
    assert refused.value.code == 4004


def test_the_readme_shows_what_happens(sides: List[Side], monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
    blocks = [block.split("```", 1)[0] for block in readme.split("```python\n")[1:]]
    monkeypatch.setenv("CAPD_SOCKET", sides[1].sidecar.socket)
    if sides[1].agent is not None:
        sides[1].agent.stop()
        sides[1].agent = None
    provider: Dict[str, Any] = {"__name__": "translator"}
    # dataclasses look up their module there.
    monkeypatch.setitem(sys.modules, "translator", types.ModuleType("translator"))
    exec(blocks[0].replace("agent.run()", "agent.start()"), provider)
    agent = provider["agent"]
    assert agent.wait_ready(PATIENCE_SECONDS)
    call = next(block for block in blocks if "with Client() as client" in block)
    expression = next(line.strip() for line in call.splitlines() if "client.call" in line)
    with capd.Client() as client:
        said = readme[readme.index(call) + len(call):].split("```")[2].strip()
        assert repr(eval(expression, {"client": client})) == said
        with pytest.raises(capd.Failed, match="there is nothing to translate"):
            client.call("com.acme.translate", {"text": ""})
    agent.stop()


@pytest.mark.parametrize("format", ["openai", "anthropic", "mcp"])
def test_a_model_calls_tools(sides: List[Side], format: str) -> None:
    with capd.Client(sides[0].sidecar.socket) as client:
        tools = client.tools(format, namespace="com.acme")
        name = next(name for name, id in tools.names.items() if id == "com.acme.translate:1.2.0")
        definition = next(tool for tool in tools if (tool["function"] if format == "openai" else tool)["name"] == name)
        assert "'text'" in repr(definition) and "Translates" not in repr(definition)
        assert client.call_tool(tools, name, '{"text": "hello", "to": "fr"}') == {"text": "hello (fr)"}
        with pytest.raises(capd.Refused) as refused:
            client.call_tool(tools, name, {"text": 1})
        assert refused.value.code == 4004


def schema(text: str) -> capd.Schema:
    return capd.Schema(hashlib.sha256(text.encode()).hexdigest(), text)


def test_a_call_is_proven_against_what_its_code_was_built_on(sides: List[Side]) -> None:
    fits = schema('{"type":"object","properties":{"text":{"type":"string"}},"required":["text"],"additionalProperties":false}')
    drifts = schema('{"type":"object","properties":{"text":{"type":"integer"}},"required":["text"],"additionalProperties":false}')
    with capd.Client(sides[0].sidecar.socket) as client:
        assert client.call("com.acme.translate", {"text": "hello"}, built_against=capd.BuiltAgainst(fits, None)) == {"text": "hello (de)"}
        assert [event.kind for event in client.stream("com.acme.translate", {"text": "a"}, built_against=capd.BuiltAgainst(fits, None))][-1] == "result"
        with pytest.raises(capd.Refused) as refused:
            client.call("com.acme.translate", {"text": "hello"}, built_against=capd.BuiltAgainst(drifts, None))
        assert refused.value.code == 4902 and refused.value.details["findings"]


def test_what_is_there_is_listed_and_described(sides: List[Side]) -> None:
    with capd.Client(sides[0].sidecar.socket) as client:
        ids = [each["id"] for each in client.list(namespace="com.acme")]
        assert "com.acme.translate:1.2.0" in ids and "com.acme.echo:1.0.0" in ids
        assert [each["id"] for each in client.list(q="translate")] == ["com.acme.translate:1.2.0"]
        assert len(client.list(limit=2)) == 2
        described = client.describe("com.acme.translate")
        assert described["id"] == "com.acme.translate:1.2.0" and described["providers"][0]["did"] == sides[1].sidecar.announcement["did"]
        assert client.self()["did"] == sides[0].sidecar.announcement["did"]
        assert client.call("com.acme.echo", 1) == 1
        assert any(each["role"] for each in client.calls(capability="com.acme.echo"))


def test_many_calls_at_once_from_one_client(sides: List[Side]) -> None:
    async def ask() -> List[Any]:
        async with capd.AsyncClient(sides[0].sidecar.socket) as client:
            return await asyncio.gather(*(client.call("com.acme.echo", number) for number in range(200)))

    assert asyncio.run(ask()) == list(range(200))
