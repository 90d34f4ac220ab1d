"""Reads server-sent events: bytes in, events out."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from . import _json


class Event(NamedTuple):
    """One event of a call: `accepted`, `processing`, `progress`, `input_required`, and at last `result`."""

    kind: str
    data: Any
    id: Optional[str] = None


class EventParser:
    """Reads events from the bytes of a stream, however these are cut."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._after_cr = False
        self._is_first = True
        self._kind = ""
        self._data: list[str] = []
        self._id: Optional[str] = None

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete.

        Raises `ValueError` for data that is no JSON.
        """
        events: list[Event] = []
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        if data:
            self._after_cr = data.endswith(b"\r")
        *lines, rest = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._line += line
            whole, self._line = bytes(self._line), bytearray()
            event = self._take(whole.decode("utf-8", "replace"))
            if event is not None:
                events.append(event)
        self._line += rest
        return events

    def _take(self, line: str) -> Optional[Event]:
        if self._is_first:
            self._is_first = False
            line = line[1:] if line.startswith("\ufeff") else line
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self) -> Optional[Event]:
        kind, data = self._kind, self._data
        self._kind, self._data = "", []
        if not data:
            return None
        return Event(kind or "message", _json.loads("\n".join(data)), self._id)
