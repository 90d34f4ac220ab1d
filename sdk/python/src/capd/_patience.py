"""Decides whether a request is sent again, and when."""

from __future__ import annotations

import random
import time
from typing import Optional

from ._http import Broken, Late, Response, TransportError
from .errors import CapdError, OutcomeUnknown, Pending, Refused

#: How long a client waits for a sidecar that cannot be reached, unless it is told otherwise.
WAIT_SECONDS = 30.0
#: What the sidecar has on top of a call's timeout to say itself that it is over.
GRACE_SECONDS = 4.0
_FIRST_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 2.0


class Backoff:
    """Growing pauses, each shortened at random by up to a half."""

    def __init__(self) -> None:
        self._next = _FIRST_PAUSE_SECONDS

    def pause(self) -> float:
        """The next pause in seconds."""
        pause = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._next * 2, _PAUSE_SECONDS_MAX)
        return pause

    def reset(self) -> None:
        """Begins again with the first pause."""
        self._next = _FIRST_PAUSE_SECONDS


class Patience:
    """The attempts of one request: until its timeout, or until its sidecar could not be reached for too long."""

    def __init__(self, timeout: Optional[float], wait: float, answer_deadline: Optional[float] = None) -> None:
        now = time.monotonic()
        self._timeout = timeout
        self._wait = wait
        self._over = now + timeout if timeout is not None else None
        self._backoff = Backoff()
        self._trouble_since: Optional[float] = None
        self.was_sent = False
        #: When the answer must be there.
        self.deadline = now + timeout + GRACE_SECONDS if timeout is not None else answer_deadline

    def progressed(self) -> None:
        """The sidecar has answered: what comes later is new trouble."""
        self._trouble_since = None
        self._backoff.reset()

    def after_failure(self, error: TransportError, was_written: bool) -> float:
        """The pause before the next attempt, in seconds.

        Raises the error that the user gets when there is none.
        """
        self.was_sent = self.was_sent or was_written
        if isinstance(error, Broken) and error.is_stale:
            return 0.0
        pause = self._backoff.pause()
        if not isinstance(error, Late) and self._has_time_for(pause):
            return pause
        raise self._given_up(error) from None

    def after_refusal(self, response: Response, error: CapdError) -> float:
        """The pause that the sidecar asks for, in seconds. Raises the error when it is final."""
        seconds = _retry_after(response)
        if seconds is None or not isinstance(error, Refused) or error.retry == "no" or not self._has_time_for(seconds):
            raise error
        return seconds

    def _has_time_for(self, pause: float) -> bool:
        now = time.monotonic()
        if self._trouble_since is None:
            self._trouble_since = now
        end = self._over if self._over is not None else self._trouble_since + self._wait
        return now + pause < end

    def _given_up(self, error: TransportError) -> CapdError:
        if not self.was_sent:
            return Refused(str(error), code=2002, name="ENDPOINT_UNREACHABLE", retry="yes")
        if isinstance(error, Late) and self._timeout is not None:
            return Pending(f"no answer within {self._timeout:g} s", code=5003, name="TIMEOUT", retry="yes")
        return OutcomeUnknown(f"contact with the sidecar was lost after the request was sent: {error}", code=5902, name="INTERRUPTED")


def _retry_after(response: Response) -> Optional[float]:
    """The seconds of `Retry-After`; the sidecar sends no dates."""
    try:
        seconds = float(response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, seconds)
