"""What a flow asks its transport to do.

A flow is a generator: it yields effects and is sent their results, or is thrown a `TransportError`. It does no I/O, so
the blocking client and the asyncio client run the same flows: there is one place that decides what is sent again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generator, Generic, Optional, TypeVar, Union

from ._http import Request, Response
from ._sse import Event

T = TypeVar("T")


@dataclass(frozen=True)
class Exchange:
    """Send a request; the result is its whole `Response`."""

    request: Request
    deadline: Optional[float]


@dataclass(frozen=True)
class Open:
    """Send a request; the result is its `Response`. A stream of events stays open for `Read`."""

    request: Request
    deadline: Optional[float]


@dataclass(frozen=True)
class Read:
    """Read the next `Event` of the open stream; None when it has ended."""

    deadline: Optional[float]


@dataclass(frozen=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Emit:
    """Give an event to the user."""

    event: Event


Effect = Union[Exchange, Open, Read, Pause, Emit]
Flow = Generator[Effect, Any, T]


class Done(Generic[T]):
    """What a flow has returned, once it has."""

    value: T


__all__ = ["Done", "Effect", "Emit", "Event", "Exchange", "Flow", "Open", "Pause", "Read", "Request", "Response"]
