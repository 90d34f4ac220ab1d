"""Turns an answer that is no result into the exception of its outcome (RFC 9457)."""

from __future__ import annotations

from typing import Any, Optional

from . import _json
from ._http import Response
from .errors import CapdError, OutcomeUnknown, Refused, of_outcome


def of_response(response: Response, key: Optional[str] = None) -> CapdError:
    """The error that a response with a status of 300 or above stands for."""
    try:
        problem = _json.loads(response.body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        # Something in between has answered, or HTTP itself refused the request.
        text = response.body[:200].decode("utf-8", "replace").strip()
        problem = {"detail": f"HTTP status {response.status}" + (f": {text}" if text else "")}
    return of_problem(problem, response.status, response.headers.get("capd-call"), key)


def of_problem(problem: Any, status: Optional[int] = None, call: Optional[str] = None, key: Optional[str] = None) -> CapdError:
    """The error of a problem document."""
    if not isinstance(problem, dict):
        problem = {"detail": f"an error that is no problem document: {problem!r}"[:200]}
    if status is None and isinstance(problem.get("status"), int):
        status = problem["status"]
    kind = of_outcome(str(problem.get("outcome")))
    if kind is None:
        # Without a known outcome only a status that blames the request says that nothing was done.
        kind = Refused if status is not None and 300 <= status < 500 else OutcomeUnknown
    code = problem.get("code")
    title = problem.get("title")
    return kind(
        str(problem.get("detail") or title or f"HTTP status {status}"),
        code=code if isinstance(code, int) else 0,
        name=str(title or ""),
        details=problem.get("details"),
        call=str(problem["call"]) if problem.get("call") else call,
        retry=str(problem.get("retry") or "no"),
        status=status,
        key=key,
    )
