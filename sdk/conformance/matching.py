"""Compares what was seen with what a scenario expects; says where they differ.

A pattern is a JSON value. An object with one member whose name begins with `$` is a matcher (but for `$ref` and
`$schema`, which schemas need):

| matcher | fits |
| --- | --- |
| `{"$any": true}` | everything that is there |
| `{"$absent": true}` | a member, header or parameter that is missing |
| `{"$bind": "NAME"}` | everything at first; from then on only the same value |
| `{"$other_than": "NAME"}` | every value but the one bound to that name |
| `{"$regex": "…"}` | a text that the expression matches whole |
| `{"$subset": {…}}` | an object that has at least these members |
| `{"$has": [pattern, …]}` | a list in which each pattern fits an item |
| `{"$duration_ms": 1500}` | a text such as `1500ms` or `1.5s` |
"""

import re
from decimal import Decimal
from typing import Any, Dict, Optional

from exact import dumps, equal


class Absent:
    """A member, header or parameter that is missing."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = Absent()

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _shown(value: Any) -> str:
    return repr(value) if value is ABSENT else dumps(value)


def difference(pattern: Any, seen: Any, bound: Dict[str, Any], path: str = "") -> Optional[str]:
    """None when it fits; else the place, what was expected there, and what was seen. `bound` takes new bindings."""
    place = path or "/"
    if isinstance(pattern, dict) and len(pattern) == 1:
        (name, argument), = pattern.items()
        if name.startswith("$") and name not in ("$ref", "$schema"):
            return _matcher(name, argument, seen, bound, path)
    if seen is ABSENT:
        return f"{place}: expected {_shown(pattern)}, saw nothing"
    if isinstance(pattern, dict) and isinstance(seen, dict):
        for name in {**pattern, **seen}:
            inner = pattern.get(name, {"$absent": True})
            found = difference(inner, seen.get(name, ABSENT), bound, f"{path}/{name}")
            if found:
                return found
        return None
    if isinstance(pattern, list) and isinstance(seen, list):
        if len(pattern) != len(seen):
            return f"{place}: expected {len(pattern)} items, saw {len(seen)}: {_shown(seen)}"
        for index, (inner, item) in enumerate(zip(pattern, seen)):
            found = difference(inner, item, bound, f"{path}/{index}")
            if found:
                return found
        return None
    return None if equal(pattern, seen) else f"{place}: expected {_shown(pattern)}, saw {_shown(seen)}"


def _matcher(name: str, argument: Any, seen: Any, bound: Dict[str, Any], path: str) -> Optional[str]:
    fits = True
    if name == "$absent":
        fits = seen is ABSENT
    elif seen is ABSENT:
        fits = False
    elif name == "$bind":
        fits = equal(bound.setdefault(argument, seen), seen)
    elif name == "$other_than":
        fits = not equal(bound.get(argument), seen)
    elif name == "$regex":
        fits = isinstance(seen, str) and re.fullmatch(argument, seen) is not None
    elif name == "$subset":
        if isinstance(seen, dict):
            for member, pattern in argument.items():
                found = difference(pattern, seen.get(member, ABSENT), bound, f"{path}/{member}")
                if found:
                    return found
        else:
            fits = False
    elif name == "$has":
        fits = isinstance(seen, list) and all(
            any(difference(pattern, item, dict(bound)) is None for item in seen) for pattern in argument)
    elif name == "$duration_ms":
        parts = _DURATION.fullmatch(seen) if isinstance(seen, str) else None
        fits = parts is not None and Decimal(parts[1]) * _UNIT_MS[parts[2]] == Decimal(argument)
    elif name != "$any":
        raise ValueError(f"{path or '/'}: there is no matcher {name}")
    if fits:
        return None
    expected = f"the {argument} seen before, {_shown(bound[argument])}" if name == "$bind" and argument in bound \
        else f"{name} {dumps(argument)}"
    return f"{path or '/'}: expected {expected}, saw {_shown(seen)}"
