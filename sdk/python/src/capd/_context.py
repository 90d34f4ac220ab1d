"""What a handler knows of its call, and how it speaks to its caller."""

from __future__ import annotations

import threading
from typing import Any, Callable, Optional, Sequence

Post = Callable[[str, Any], None]


class Cancelled(Exception):
    """Raised by `Context.check` in a handler that is no coroutine once its call was cancelled."""


class Context:
    """One call, as its handler sees it. A parameter of this type gets it::

        @agent.capability("com.acme.report")
        async def report(topic: str, call: capd.Context) -> Report:
            call.progress(40, "reading")
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
        #: The call's deadline as the sidecar told it.
        self.deadline_ms = deadline_ms
        #: Set once the call was cancelled. A handler that is a coroutine is cancelled as well.
        self.cancelled = threading.Event()
        #: Why it was cancelled.
        self.reason: Optional[str] = None
        self._post = post

    def progress(self, percent: float, text: Optional[str] = None) -> None:
        """Tells the caller how far the call is, from 0 to 100. Returns at once; reports are sent in order."""
        if not 0 <= percent <= 100:
            raise ValueError(f"percent: {percent!r} is not from 0 to 100")
        self._post("progress", {"progress_pct": percent, **({"status_text": text} if text is not None else {})})

    def ask(self, prompt: str, options: Optional[Sequence[str]] = None, timeout: Optional[float] = None) -> None:
        """Tells the caller that the call waits for something that only the caller's side can do. `timeout` is in seconds."""
        body: dict[str, Any] = {"prompt": prompt}
        if options is not None:
            body["options"] = list(options)
        if timeout is not None:
            body["timeout_ms"] = round(timeout * 1000)
        self._post("input", body)

    def check(self) -> None:
        """Raises `Cancelled` once the call was cancelled. For handlers that are no coroutines."""
        if self.cancelled.is_set():
            raise Cancelled(self.reason or "cancelled")
