"""One exception for each outcome that a call can have.

The type tells what you may do next; `code` tells why::

    try:
        client.call("com.acme.order", order, key="order-17")
    except capd.Refused as error:         # nothing was executed: fix it and call again
        ...
    except capd.Failed as error:          # it ran; this is its one result
        ...
    except capd.OutcomeUnknown as error:  # look at the effect first; the same key never runs it twice
        ...
    except capd.Pending as error:         # it may still run: ask again with the same key, or client.result(error.call)
        ...
"""

from __future__ import annotations

from typing import Any, ClassVar, Optional

__all__ = ["CallError", "CapdError", "Failed", "OutcomeUnknown", "Pending", "Refused", "SchemaError"]


class CapdError(Exception):
    """A call that has no result, or a request that the sidecar refused."""

    #: `refused`, `failed`, `unknown` or `pending`.
    outcome: ClassVar[str] = ""

    def __init__(self, message: str, *, code: int = 0, name: str = "", details: Any = None, call: Optional[str] = None,
                 retry: str = "no", status: Optional[int] = None, key: Optional[str] = None) -> None:
        super().__init__(message)
        #: What happened, for people.
        self.message = message
        #: The error code, such as 4004; 0 when the answer had none.
        self.code = code
        #: The code's name, such as `SCHEMA_VIOLATION`.
        self.name = name
        #: Violations, findings, and whatever else the code carries; None when there is nothing.
        self.details = details
        #: The call's id, where one was given.
        self.call = call
        #: Whether the same request may succeed later: `no`, `yes` or `backoff`.
        self.retry = retry
        #: The HTTP status; None when no answer came.
        self.status = status
        #: The idempotency key that the request was made with: the same key never runs the call twice.
        self.key = key

    def __str__(self) -> str:
        title = " ".join(part for part in (str(self.code) if self.code else "", self.name) if part)
        call = f" (call {self.call})" if self.call else ""
        return f"{title}: {self.message}{call}" if title else f"{self.message}{call}"


class Refused(CapdError):
    """Nothing was executed. Fix the cause and call again."""

    outcome = "refused"


class Failed(CapdError):
    """The call ran, and this error is its one result. Decide by `code`."""

    outcome = "failed"


class OutcomeUnknown(CapdError):
    """Nobody knows whether the call took effect. Look at the effect before you call again under another key."""

    outcome = "unknown"


class Pending(CapdError):
    """The call may still run. Ask again with the same key, or wait with `client.result(error.call)`."""

    outcome = "pending"


class CallError(Exception):
    """What a handler raises so that its caller gets a code, a message and details.

    `code` is yours to choose among those that the protocol does not use: 6000 and above. Any other exception reaches the
    caller as 5001, without its text.
    """

    def __init__(self, code: int, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class SchemaError(TypeError):
    """A type hint that the strict schema profile cannot say. Raised at import, with the place."""


def of_outcome(outcome: str) -> Optional[type[CapdError]]:
    """The exception of an outcome; None for one that this version does not know."""
    return {"refused": Refused, "failed": Failed, "unknown": OutcomeUnknown, "pending": Pending}.get(outcome)
