"""What the conformance scenarios do not ask of a client."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from conftest import Play

import capd
from capd import _async, _flows, _patience
from capd._http import Broken, Late, Response, Unreachable

PATH = "/v1/call/com.acme.f"
CALL = "0000019aa8c0000000000000000000a1"


def post(body: Any, reply: Dict[str, Any], **more: Any) -> Dict[str, Any]:
    return {"method": "POST", "path": PATH, "body": body, "reply": reply, **more}


def test_an_answer_says_what_the_sidecar_says_about_it(play: Play, tmp_path: Path) -> None:
    headers = {"Capd-Call": CALL, "Capd-Capability": "com.acme.f:1.0.0", "Capd-Execution-Ms": "12", "Capd-Replayed": "true", "Deprecation": "true"}
    sidecar = play(post(1, {"headers": headers, "body": 2}, headers={"Capd-Ttl": "90000ms", "traceparent": "00-1"}, query={"to": "did:key:z"}))
    with capd.Client(sidecar.address) as client:
        answer = client.answer("com.acme.f", 1, to="did:key:z", ttl=90, traceparent="00-1")
    assert answer == capd.Answer(2, CALL, "com.acme.f:1.0.0", 12, True, True)


def test_threads_share_a_client_and_get_their_own_answers(play: Play) -> None:
    count = 40
    sidecar = play(*(post(number, {"body": [number]}) for number in range(count)))
    answers: List[Any] = [None] * count
    with capd.Client(sidecar.address) as client:
        def ask(number: int) -> None:
            answers[number] = client.call("com.acme.f", number)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [[number] for number in range(count)]


def test_tasks_share_a_client_and_get_their_own_answers(play: Play) -> None:
    count = 40
    sidecar = play(*(post(number, {"body": [number]}) for number in range(count)))

    async def ask() -> List[Any]:
        async with capd.AsyncClient(sidecar.address) as client:
            return await asyncio.gather(*(client.call("com.acme.f", number) for number in range(count)))

    assert asyncio.run(ask()) == [[number] for number in range(count)]


def test_a_client_keeps_its_connection(play: Play) -> None:
    sidecar = play(*(post(number, {"body": number}) for number in range(5)))
    with capd.Client(sidecar.address) as client:
        for number in range(5):
            client.call("com.acme.f", number)
    assert len(sidecar.connections) == 1


def test_a_stream_that_is_left_early_does_not_cancel_the_call(play: Play) -> None:
    accepted = {"id": "1", "event": "accepted", "data": {"call": CALL}}
    sidecar = play(post(1, {"events": [accepted, {"wait_closed": True}]}))
    with capd.Client(sidecar.address) as client, client.stream("com.acme.f", 1) as stream:
        for event in stream:
            assert event == capd.Event("accepted", {"call": CALL}, "1")
            break
        assert stream.call == CALL
    assert sidecar.requests == [f"POST {PATH}"]


def test_a_stream_can_be_cancelled(play: Play) -> None:
    accepted = {"id": "1", "event": "accepted", "data": {"call": CALL}}
    delete = {"method": "DELETE", "path": f"/v1/calls/{CALL}", "reply": {"status": 202, "body": {}}}

    async def ask(address: str) -> None:
        async with capd.AsyncClient(address) as client, client.stream("com.acme.f", 1) as stream:
            assert (await stream.__anext__()).kind == "accepted"
            await stream.cancel()

    sidecar = play(post(1, {"events": [accepted, {"wait_closed": True}]}, repeat=True, optional=True), delete, dict(delete))
    asyncio.run(ask(sidecar.address))
    with capd.Client(sidecar.address) as client:
        stream = client.stream("com.acme.f", 1)
        next(stream)
        stream.cancel()


def test_a_task_that_is_cancelled_twice_does_not_hang(play: Play) -> None:
    again = post(1, {"wait": "never", "cut": "unanswered"}, name="again", headers={"Prefer": "respond-async"})
    sidecar = play(post(1, {"wait": "never", "cut": "unanswered"}, name="call", headers={"Prefer": {"$absent": True}}), again)

    async def received(name: str) -> None:
        while not sidecar.signals.is_set(f"{name}.received"):
            await asyncio.sleep(0.005)

    async def ask() -> None:
        client = capd.AsyncClient(sidecar.address)
        task = asyncio.ensure_future(client.call("com.acme.f", 1))
        await received("call")
        task.cancel()
        await received("again")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 5)
        await client.close()

    asyncio.run(ask())
    sidecar.signals.set("never")


@pytest.mark.parametrize(("arguments", "message"), [
    ({"params": float("nan")}, "nan"), ({"params": {1: 2}}, "text keys"), ({"key": ""}, "key"), ({"key": "a\nb"}, "control"), ({"key": "x" * 256}, "255 bytes"),
    ({"timeout": 0}, "above 0"), ({"timeout": float("inf")}, "above 0"), ({"ttl": -1}, "ttl"), ({"thread": "a\r\nX: y"}, "control"),
])
def test_what_cannot_be_sent_is_an_error_before_anything_is(play: Play, arguments: Dict[str, Any], message: str) -> None:
    sidecar = play()
    with capd.Client(sidecar.address) as client, pytest.raises((TypeError, ValueError), match=message):
        client.call("com.acme.f", arguments.pop("params", None), **arguments)
    assert sidecar.requests == []


def test_an_error_says_what_happened_and_carries_its_key(play: Play) -> None:
    problem = {"title": "SCHEMA_VIOLATION", "detail": "params do not fit", "code": 4004, "outcome": "refused", "retry": "no", "call": CALL}
    sidecar = play(post(1, {"status": 422, "body": problem}))
    with capd.Client(sidecar.address) as client, pytest.raises(capd.Refused) as caught:
        client.call("com.acme.f", 1, key="order-17")
    assert str(caught.value) == f"4004 SCHEMA_VIOLATION: params do not fit (call {CALL})"
    assert (caught.value.key, caught.value.status, caught.value.outcome) == ("order-17", 422, "refused")


def test_a_closed_client_says_so(play: Play) -> None:
    client = capd.Client(play().address)
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.self()


def test_limits_of_lists_go_to_the_sidecar(play: Play) -> None:
    page = {"capabilities": [1, 2, 3], "next_cursor": "c"}
    sidecar = play({"method": "GET", "path": "/v1/capabilities", "query": {"limit": "3"}, "reply": {"body": page}})
    with capd.Client(sidecar.address) as client:
        assert client.list(limit=3) == [1, 2, 3]


def attempts(timeout: Optional[float], wait: float, clock: List[float], monkeypatch: pytest.MonkeyPatch) -> List[float]:
    """The pauses before the attempts of a request whose sidecar is never there, until it is given up."""
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    patience, pauses = _patience.Patience(timeout, wait), []
    with pytest.raises(capd.Refused) as caught:
        while True:
            pauses.append(patience.after_failure(Unreachable("x"), False))
            clock[0] += pauses[-1]
    assert caught.value.code == 2002
    return pauses


@pytest.mark.parametrize(("timeout", "wait", "seconds"), [(None, 30.0, 30.0), (8.0, 30.0, 8.0), (0.02, 30.0, 0.02)])
def test_attempts_back_off_and_end_in_time(timeout: Optional[float], wait: float, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    pauses = attempts(timeout, wait, clock, monkeypatch)
    assert clock[0] - 1000 <= seconds and seconds - (clock[0] - 1000) <= 2.0
    assert all(pause <= 2.0 for pause in pauses) and (not pauses or pauses[0] <= 0.05)


def test_a_request_that_was_sent_is_never_called_refused() -> None:
    patience = _patience.Patience(None, 0.0)
    with pytest.raises(capd.OutcomeUnknown) as caught:
        patience.after_failure(Broken("x"), True)
    assert caught.value.code == 5902
    with pytest.raises(capd.Pending):
        _patience.Patience(1.0, 0.0).after_failure(Late("x"), True)


def test_only_a_refusal_that_says_when_is_tried_again() -> None:
    later = Response(503, {"retry-after": "0"})
    for error in (capd.Failed("x", retry="yes"), capd.OutcomeUnknown("x", retry="yes"), capd.Pending("x", retry="yes"), capd.Refused("x", retry="no")):
        with pytest.raises(capd.CapdError):
            _patience.Patience(None, 30.0).after_refusal(later, error)
    assert _patience.Patience(None, 30.0).after_refusal(later, capd.Refused("x", retry="backoff")) == 0
    for header in ({}, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, {"retry-after": "31"}):
        with pytest.raises(capd.Refused):
            _patience.Patience(None, 30.0).after_refusal(Response(503, header), capd.Refused("x", retry="yes"))


def test_nothing_but_the_standard_library_is_imported() -> None:
    program = ("import sys, capd; names = {name.split('.')[0] for name in sys.modules}; "
               "print(sorted(names - set(sys.stdlib_module_names) - {'capd', '__main__'}))" if sys.version_info >= (3, 10) else "print([])")
    source = str(Path(capd.__file__).parents[1])
    out = subprocess.run([sys.executable, "-S", "-c", program], env={**os.environ, "PYTHONPATH": source}, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_call_takes_the_same_arguments_in_both_clients() -> None:
    import inspect
    for name in ("call", "answer", "stream", "start", "result", "get", "cancel", "calls", "list", "describe", "self", "tools", "call_tool"):
        blocking, waiting = (inspect.signature(getattr(kind, name)) for kind in (capd.Client, capd.AsyncClient))
        assert blocking.parameters.keys() == waiting.parameters.keys(), name


def test_made_keys_differ() -> None:
    keys = {_flows.make_call("a.b.c", None, version=None, timeout=None, key=None, thread=None, built_against=None).key for _ in range(1000)}
    assert len(keys) == 1000


def test_a_late_answer_is_pending_at_once_and_not_after_the_waiting_time(play: Play) -> None:
    sidecar = play(post(1, {"wait": "never", "cut": "unanswered"}, query={"timeout": "100ms"}))
    begin = time.monotonic()
    with capd.Client(sidecar.address) as client, pytest.raises(capd.Pending):
        client.call("com.acme.f", 1, timeout=0.1)
    sidecar.signals.set("never")
    assert time.monotonic() - begin < 10


def test_a_cancellation_that_comes_together_with_the_answer_is_not_lost() -> None:
    async def main(steps: int, deadline: Optional[float]) -> bool:
        future: "asyncio.Future[int]" = asyncio.get_running_loop().create_future()

        async def answer() -> int:
            return await future

        waiting = asyncio.ensure_future(_async._until(answer(), deadline))
        for _ in range(3):
            await asyncio.sleep(0)
        future.set_result(1)
        for _ in range(steps):
            await asyncio.sleep(0)
        if not waiting.cancel():
            return False
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return True

    for deadline in (None, time.monotonic() + 60):
        cancelled = [asyncio.run(main(steps, deadline)) for steps in range(5)]
        assert cancelled[0] and not cancelled[-1]
