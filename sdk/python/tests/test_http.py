"""The reader of HTTP/1.1 gives the same whatever way the bytes are cut, and takes nothing that is not HTTP."""

from typing import List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd._address import Address
from capd._http import Broken, Request, ResponseParser
from capd._sse import Event, EventParser

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nCapd-Call: a b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n8\r\n, world!\r\n0\r\nTrailer: x\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}"
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
ENDLESS = b"HTTP/1.1 200 OK\r\n\r\nup to the end"


def read(data: bytes, cuts: List[int], ends: bool) -> Tuple[ResponseParser, bytes]:
    parser = ResponseParser()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    body = b"".join(parser.feed(data[start:end]) for start, end in zip(edges, edges[1:]))
    if ends:
        parser.end()
    return parser, body


@pytest.mark.parametrize(("data", "status", "body", "ends"), [
    (LENGTH, 200, b"hello", False), (CHUNKED, 200, b"hello, world!", False), (CONTINUE, 404, b"{}", False),
    (EMPTY, 204, b"", False), (ENDLESS, 200, b"up to the end", True),
])
@given(cuts=st.lists(st.integers(0, 200)))
def test_a_response_reads_the_same_however_it_is_cut(data: bytes, status: int, body: bytes, ends: bool, cuts: List[int]) -> None:
    parser, got = read(data, cuts, ends)
    assert parser.head is not None and parser.head.status == status
    assert got == body and parser.done


@given(cuts=st.lists(st.integers(0, 200), min_size=0))
def test_a_response_that_breaks_off_is_no_response(cuts: List[int]) -> None:
    for data in (LENGTH, CHUNKED, CONTINUE):
        parser, _ = read(data[:-1], cuts, False)
        assert not parser.done
        with pytest.raises(Broken):
            parser.end()


@pytest.mark.parametrize("data", [
    b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
    b"x" * 70_000, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
])
def test_what_is_not_http_is_refused(data: bytes) -> None:
    with pytest.raises(Broken):
        ResponseParser().feed(data)


def test_a_request_says_where_it_goes_and_shows_the_token() -> None:
    request = Request("POST", "/v1/call/a.b.c", {"Accept": "x"}, b"{}")
    assert request.encode(Address(path="/s")) == b"POST /v1/call/a.b.c HTTP/1.1\r\nHost: localhost\r\nAccept: x\r\nContent-Length: 2\r\n\r\n{}"
    assert b"Host: 127.0.0.1:7\r\nAuthorization: Bearer t\r\n" in request.encode(Address(host="127.0.0.1", port=7, token="t"))
    assert b"Content-Length" not in Request("GET", "/v1/self").encode(Address(path="/s"))


STREAM = "\ufeffid: 1\nevent: a\ndata: {\"x\":\ndata:  1}\n\n: comment\r\n\r\nretry: 5\rdata:2\r\r\nevent: b\n\nid: 3\r\nevent: h\u00e4lf\r\ndata: \"\U0001f600\"\r\n\r\n".encode()
EVENTS = [Event("a", {"x": 1}, "1"), Event("message", 2, "1"), Event("h\u00e4lf", "\U0001f600", "3")]


@given(cuts=st.lists(st.integers(0, 200)))
def test_events_read_the_same_however_they_are_cut(cuts: List[int]) -> None:
    parser = EventParser()
    edges = sorted({0, len(STREAM), *(cut % len(STREAM) for cut in cuts)})
    assert [event for start, end in zip(edges, edges[1:]) for event in parser.feed(STREAM[start:end])] == EVENTS


def test_events_read_the_same_byte_by_byte() -> None:
    parser = EventParser()
    assert [event for byte in STREAM for event in parser.feed(bytes([byte]))] == EVENTS
