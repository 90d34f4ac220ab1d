"""The strict profile of schemas: which keywords and formats every side of a fleet enforces."""

from __future__ import annotations

from typing import Any

from .errors import SchemaError

#: The keywords of the strict profile; `definitions` and `$ref` are made here alone.
KEYWORDS = frozenset((
    "type", "enum", "const", "properties", "required", "additionalProperties", "items", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "oneOf", "anyOf", "allOf", "not",
    "$ref", "format", "title", "description", "default", "examples", "definitions",
))
FORMATS = frozenset(("uuid", "email", "uri", "uri-reference", "date-time"))
_SUBSCHEMAS = ("items", "additionalProperties", "not")
_LISTS = ("oneOf", "anyOf", "allOf")
_MAPS = ("properties", "definitions")


def check_strict(schema: Any, place: str, pointer: str = "") -> None:
    """Raises `SchemaError` for a schema that is not within the strict profile."""
    if isinstance(schema, bool) or not isinstance(schema, dict):
        return
    for name, value in schema.items():
        at = f"{pointer}/{name}"
        if name not in KEYWORDS:
            raise SchemaError(f"{place}: the strict profile does not have the keyword {name!r} (at {at})")
        if name == "format" and value not in FORMATS:
            raise SchemaError(f"{place}: the strict profile does not have the format {value!r} (at {at}); it has {', '.join(sorted(FORMATS))}")
        if name in _SUBSCHEMAS:
            check_strict(value, place, at)
        elif name in _LISTS:
            for index, inner in enumerate(value):
                check_strict(inner, place, f"{at}/{index}")
        elif name in _MAPS:
            for member, inner in value.items():
                check_strict(inner, place, f"{at}/{member}")
