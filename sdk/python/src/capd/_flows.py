"""The requests of a client as flows: what is sent, what is sent again, and what comes of it."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Mapping, NamedTuple, Optional, TypeVar
from urllib.parse import quote

from . import _json
from ._effects import Emit, Exchange, Flow, Open, Pause, Read
from ._http import Broken, Request, Response, TransportError
from ._patience import Backoff, Patience
from ._problem import of_problem, of_response
from ._sse import Event
from .errors import CapdError, OutcomeUnknown

T = TypeVar("T")

#: How long a key of the SDK's own is kept: as long as a call without a key is remembered. It bounds the call's time as well.
OWN_KEY_SECONDS = 3600.0
#: The same of a call with a timeout, on top of that.
OWN_KEY_MARGIN_SECONDS = 300.0

EVENT_STREAM = "text/event-stream"
#: The most items that the sidecar gives on one page.
PAGE_ITEMS_MAX = 1000


class Schema(NamedTuple):
    """A schema document, byte for byte, and its hash."""

    sha256: str
    json: str


class BuiltAgainst(NamedTuple):
    """The schemas that a caller was generated from."""

    input: Optional[Schema]
    output: Optional[Schema]


class Answer(NamedTuple):
    """A result with what the sidecar says about it."""

    value: Any
    #: The call's id.
    call: Optional[str]
    #: The capability id that was chosen.
    capability: Optional[str]
    #: How long the provider took, in milliseconds.
    execution_ms: Optional[int]
    #: Whether the recorded result of an earlier call with the same key was given.
    replayed: bool
    #: Whether the chosen version is deprecated.
    deprecated: bool


@dataclass
class Call:
    """One call under its key: the same request however often it is sent."""

    name: str
    body: bytes
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    built_against: Optional[BuiltAgainst]
    timeout: Optional[float]
    #: The call's id, once the sidecar has told it.
    id: Optional[str] = None
    #: The last event that was seen, after which a stream resumes.
    last_event_id: str = ""
    requests: list[Request] = field(default_factory=list)

    def request(self, accept: str = "application/json", **more: str) -> Request:
        """The POST of this call."""
        headers = {"Content-Type": "application/json", "Accept": accept, **self.headers, **more}
        request = Request("POST", target(path("/v1/call", self.name), self.query), headers, self.body)
        self.requests.append(request)
        return request

    @property
    def was_sent(self) -> bool:
        """Whether the sidecar may know of it."""
        return any(request.written for request in self.requests)


def make_call(name: str, params: Any, *, version: Optional[str], timeout: Optional[float], key: Optional[str], thread: Optional[str],
              built_against: Optional[BuiltAgainst], to: Optional[str] = None, ttl: Optional[float] = None,
              traceparent: Optional[str] = None, affinity: Optional[str] = None) -> Call:
    """A call that is ready to be sent.

    Raises `TypeError` or `ValueError` for arguments that cannot be sent.
    """
    if key is None:
        key = uuid.uuid4().hex
        # Nobody else knows this key, and each one is kept by both sidecars: no longer than it can be of use.
        ttl = ttl or (OWN_KEY_SECONDS if timeout is None else timeout + OWN_KEY_MARGIN_SECONDS)
    headers = {"Idempotency-Key": _header("key", key)}
    if not 1 <= len(key.encode("utf-8")) <= 255:
        raise ValueError("key: an idempotency key has 1 to 255 bytes")
    if thread is not None:
        headers["Capd-Thread"] = _header("thread", thread)
    if affinity is not None:
        headers["Capd-Affinity"] = _header("affinity", affinity)
    if traceparent is not None:
        headers["traceparent"] = _header("traceparent", traceparent)
    if built_against is not None and (built_against.input or built_against.output):
        headers["Capd-Built-Against"] = ", ".join(schema.sha256 if schema else "-" for schema in built_against)
    query = {}
    if version is not None:
        query["version"] = version
    if timeout is not None:
        query["timeout"] = _milliseconds("timeout", timeout)
    if to is not None:
        query["to"] = to
    if ttl is not None:
        headers["Capd-Ttl"] = _milliseconds("ttl", ttl)
    return Call(name, _json.dumps(params), key, query, headers, built_against, timeout)


def _milliseconds(name: str, seconds: float) -> str:
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{name}: {seconds!r} is not above 0 s")
    return f"{max(1, round(seconds * 1000))}ms"


def _header(name: str, value: str) -> str:
    if not value or any(ord(character) < 0x20 or ord(character) == 0x7F for character in value):
        raise ValueError(f"{name}: {value!r} is empty or has control characters")
    return value


def target(place: str, query: Mapping[str, Any]) -> str:
    """A request's target; parameters that are None are left out."""
    pairs = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items() if value is not None)
    return f"{place}?{pairs}" if pairs else place


def path(place: str, name: str) -> str:
    """A path that ends with a name that somebody gave."""
    return f"{place}/{quote(name, safe=':')}"


def call(made: Call, wait: float) -> Flow[Answer]:
    """Calls and waits for the result."""
    response = yield from _named(made, _answer(made, Patience(made.timeout, wait), made.request(), False))
    return _result(made, response)


def start(made: Call, wait: float) -> Flow[str]:
    """Starts a call; its id."""
    response = yield from _named(made, _answer(made, Patience(made.timeout, wait), made.request(Prefer="respond-async"), False))
    if made.id is None:
        raise OutcomeUnknown("the sidecar's answer has no call id", code=1001, status=response.status, key=made.key)
    return made.id


def stream(made: Call, wait: float) -> Flow[Any]:
    """Emits the events of a call; its result."""
    return (yield from _named(made, _stream(made, wait)))


def _stream(made: Call, wait: float) -> Flow[Any]:
    patience = Patience(made.timeout, wait)
    while True:
        made.last_event_id = ""
        response = yield from _answer(made, patience, made.request(EVENT_STREAM), True)
        if not response.is_stream:
            return _result(made, response).value
        last = yield from _events(made, patience)
        if last is None:
            last = yield from resume(made, patience)
        if last is not None:
            return _last(last, made)


def wait_for(call_id: str, wait: float) -> Flow[Any]:
    """The result of a call that was started before."""
    made = Call("", b"", "", {}, {}, None, None, id=call_id)
    last = yield from _named(made, resume(made, Patience(None, wait), silent=True))
    if last is not None:
        return _last(last, made)
    # A sidecar that has restarted has no events of the call, and may still know how it ended.
    backoff = Backoff()
    while True:
        known = yield from get(path("/v1/calls", call_id), {}, wait)
        if "result" in known:
            return known["result"]
        if "error" in known:
            raise of_problem(known["error"], None, call_id)
        if known.get("state") in ("finished", "unknown"):
            raise OutcomeUnknown("the sidecar has no record of the call's answer; ask again with the call's key", code=5902,
                                 name="INTERRUPTED", call=call_id)
        yield Pause(backoff.pause())


def resume(made: Call, patience: Patience, silent: bool = False) -> Flow[Optional[Event]]:
    """Reads on after a break, until the last event. None when the sidecar does not know the call."""
    while made.id is not None:
        headers = {"Accept": EVENT_STREAM}
        if made.last_event_id:
            headers["Last-Event-ID"] = made.last_event_id
        request = Request("GET", path("/v1/calls", made.id) + "/events", headers)
        try:
            response: Response = yield Open(request, patience.deadline)
        except TransportError as error:
            yield Pause(patience.after_failure(error, request.written))
            continue
        if response.status == 404:
            return None
        if response.status >= 300:
            yield Pause(patience.after_refusal(response, of_response(response, made.key)))
            continue
        last = yield from _events(made, patience, silent)
        if last is not None:
            return last
    return None


def cancel(call_id: str, wait: float) -> Flow[bool]:
    """Cancels a call; whether it had not ended before."""
    request = Request("DELETE", path("/v1/calls", call_id), {"Accept": "application/json"})
    response = yield from _safe(request, wait)
    if response.status == 409:
        return False
    if response.status >= 300:
        raise of_response(response)
    return True


def cancel_call(made: Call, seconds: float) -> Flow[None]:
    """Cancels a call whose user has gone, if the sidecar has it. Never starts one that was not sent."""
    if not made.was_sent:
        return
    if made.id is None:
        # The same key joins the call, and tells its id without waiting for its end.
        response: Response = yield Exchange(made.request(Prefer="respond-async"), time.monotonic() + seconds)
        if response.status != 202:
            return
        _note_id(made, response)
    if made.id is not None:
        yield from cancel(made.id, seconds)


def get(place: str, query: Mapping[str, Any], wait: float) -> Flow[Any]:
    """Reads one document."""
    response = yield from _safe(Request("GET", target(place, query), {"Accept": "application/json"}), wait)
    if response.status >= 300:
        raise of_response(response)
    return _document(response, response.headers.get("capd-call"))


def pages(place: str, member: str, query: Mapping[str, Any], limit: Optional[int], wait: float) -> Flow[list[Any]]:
    """The items of all pages, or the first `limit` of them."""
    items: list[Any] = []
    cursor: Optional[str] = None
    while True:
        left = None if limit is None else min(limit - len(items), PAGE_ITEMS_MAX)
        page = yield from get(place, {**query, "limit": left, "cursor": cursor}, wait)
        items.extend(page[member])
        cursor = page.get("next_cursor")
        if cursor is None or (limit is not None and len(items) >= limit):
            return items if limit is None else items[:limit]


def _named(made: Call, flow: Flow[T]) -> Flow[T]:
    """The flow, whose errors name the call and its key."""
    try:
        return (yield from flow)
    except CapdError as error:
        error.call, error.key = error.call or made.id, error.key or made.key or None
        raise


def _safe(request: Request, wait: float) -> Flow[Response]:
    """The answer to a request that may be repeated: reading, cancelling, putting by content."""
    patience = Patience(None, wait)
    while True:
        try:
            response: Response = yield Exchange(request, time.monotonic() + wait)
        except TransportError as error:
            # To repeat it is safe, so nothing about its outcome is in doubt.
            yield Pause(patience.after_failure(error, False))
            continue
        if response.status in (429, 503):
            yield Pause(patience.after_refusal(response, of_response(response)))
            continue
        return response


def _answer(made: Call, patience: Patience, request: Request, is_stream: bool) -> Flow[Response]:
    """The first answer to a call that is a result, or a stream. Whatever is sent again has the same key."""
    was_put = False
    while True:
        effect = Open(request, patience.deadline) if is_stream else Exchange(request, patience.deadline)
        try:
            response: Response = yield effect
        except TransportError as error:
            yield Pause(patience.after_failure(error, request.written))
            continue
        if response.status < 300:
            _note_id(made, response)
            return response
        if response.status == 428 and made.built_against is not None and not was_put:
            was_put = True
            yield from _put_schemas(made.built_against, patience)
            continue
        yield Pause(patience.after_refusal(response, of_response(response, made.key)))


def _put_schemas(built_against: BuiltAgainst, patience: Patience) -> Flow[None]:
    for schema in dict.fromkeys(schema for schema in built_against if schema):
        request = Request("PUT", f"/v1/schemas/{schema.sha256}",
                          {"Content-Type": "application/json", "Accept": "application/json"}, schema.json.encode("utf-8"))
        while True:
            try:
                response: Response = yield Exchange(request, patience.deadline)
            except TransportError as error:
                yield Pause(patience.after_failure(error, False))
                continue
            if response.status < 300:
                break
            yield Pause(patience.after_refusal(response, of_response(response)))


def _events(made: Call, patience: Patience, silent: bool = False) -> Flow[Optional[Event]]:
    """Emits what the open stream gives; the last event, or None where the stream ended or broke before it."""
    while True:
        try:
            event: Optional[Event] = yield Read(patience.deadline)
        except Broken as error:
            yield Pause(patience.after_failure(error, True))
            return None
        except TransportError as error:
            patience.after_failure(error, True)
            return None
        except ValueError as error:
            raise OutcomeUnknown(f"an event of the stream is not JSON: {error}", code=1001, call=made.id, key=made.key) from None
        if event is None:
            yield Pause(patience.after_failure(Broken("the stream ended without a result"), True))
            return None
        patience.progressed()
        if event.id:
            made.last_event_id = event.id
        if made.id is None and event.kind == "accepted" and isinstance(event.data, dict):
            made.id = event.data.get("call") or event.data.get("id")
        if event.kind in ("result", "error"):
            if event.kind == "result" and not silent:
                yield Emit(event)
            return event
        if not silent:
            yield Emit(event)


def _last(event: Event, made: Call) -> Any:
    if event.kind == "error":
        raise of_problem(event.data, None, made.id, made.key or None)
    if not isinstance(event.data, dict) or "result" not in event.data:
        raise OutcomeUnknown("the last event of the stream has no result", code=1001, call=made.id, key=made.key or None)
    return event.data["result"]


def _note_id(made: Call, response: Response) -> None:
    made.id = response.headers.get("capd-call") or made.id
    location = response.headers.get("location", "")
    if made.id is None and "/v1/calls/" in location:
        made.id = location.rsplit("/", 1)[1]


def _result(made: Call, response: Response) -> Answer:
    headers = response.headers
    execution = headers.get("capd-execution-ms", "")
    return Answer(
        _document(response, made.id, made.key),
        made.id,
        headers.get("capd-capability"),
        int(execution) if execution.isdigit() else None,
        headers.get("capd-replayed") == "true",
        "deprecation" in headers,
    )


def _document(response: Response, call_id: Optional[str], key: Optional[str] = None) -> Any:
    try:
        return _json.loads(response.body)
    except ValueError as error:
        raise OutcomeUnknown(f"the sidecar's answer is not JSON: {error}", code=1001, status=response.status, call=call_id, key=key) from None
