"""What a handler knows of its call, and how it speaks to its caller."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional

Post = Callable[[str, Any], None]


class Cancelled(Exception):
    """Raised by `Context.check` in a handler that is no coroutine once its call was cancelled."""


class Context:
    """One call, as its handler sees it. A parameter of this type gets it::

        @agent.capability("com.acme.report")
        async def report(topic: str, call: capd.Context) -> Report:
            call.status("reading")
            call.progress(40)
    """

    def __init__(self, id: str, capability: str, params: Any, caller: Optional[str], thread: Optional[str], traceparent: Optional[str],
                 deadline_ms: Optional[int], post: Post) -> None:
        #: The call's id.
        self.id = id
        #: The capability id that was called.
        self.capability = capability
        #: The params as they came.
        self.params = params
        #: The caller's DID.
        self.caller = caller
        #: The turn of a conversation that the call belongs to; pass it on with calls of your own.
        self.thread = thread
        #: The W3C trace; pass it on with calls of your own.
        self.traceparent = traceparent
        #: How many milliseconds the call had left when it came.
        self.deadline_ms = deadline_ms
        #: Set once the call was cancelled. A handler that is a coroutine is cancelled as well.
        self.cancelled = threading.Event()
        #: Why it was cancelled.
        self.reason: Optional[str] = None
        self._post = post

    def progress(self, percent: int) -> None:
        """Tells the caller how far the call is, from 0 to 100. Returns at once; reports are sent in order."""
        if not isinstance(percent, int) or not 0 <= percent <= 100:
            raise ValueError(f"percent: {percent!r} is no integer from 0 to 100")
        self._post("progress", {"progress_pct": percent})

    def status(self, text: Optional[str] = None, *, eta: Optional[float] = None) -> None:
        """Tells the caller what the call does, and in how many seconds it will have its result."""
        body: dict[str, Any] = {}
        if text is not None:
            body["status_text"] = text
        if eta is not None:
            body["eta_ms"] = round(eta * 1000)
        if not body:
            raise ValueError("status: give a text, an eta, or both")
        self._post("progress", body)

    def ask(self, prompt: str) -> None:
        """Tells the caller that the call waits for something that only the caller's side can do."""
        self._post("input", {"prompt": prompt})

    def check(self) -> None:
        """Raises `Cancelled` once the call was cancelled. For handlers that are no coroutines."""
        if self.cancelled.is_set():
            raise Cancelled(self.reason or "cancelled")
