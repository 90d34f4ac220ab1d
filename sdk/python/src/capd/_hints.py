"""Type hints as schemas of the strict profile, and JSON as values of these types.

One walk over a hint makes both: a `Shape` has the schema, and the function that turns JSON which fits it into a value. What
the strict profile cannot say raises `SchemaError` with the place.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import types
import typing
from typing import Any, Callable, Literal, Optional, Union

from . import _json
from ._strict import check_strict
from ._values import SIMPLE, DecodeError, Schema, Shape, expect, of_enum, of_values, token
from .errors import SchemaError

_UNION_TYPES = (Union, getattr(types, "UnionType", Union))


class Keywords:
    """Further keywords of a schema: `Annotated[str, Keywords(pattern="^[a-z]+$", description="A word.")]`.

    A plain text does for a description: `Annotated[str, "A word."]`.
    """

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords


class Shapes:
    """Makes the shapes of one schema document, with the definitions that types which contain themselves need."""

    def __init__(self, mode: Literal["validation", "serialization"] = "validation") -> None:
        self.definitions: dict[str, Schema] = {}
        # What pydantic models are asked for: a result may have members that params do not.
        self._mode = mode
        self._open: dict[Any, list[Shape]] = {}
        self._recursive: dict[Any, str] = {}

    def of(self, hint: Any, place: str) -> Shape:
        """The shape of a type hint. `place` is where it is written."""
        if isinstance(hint, (str, typing.ForwardRef)):
            raise SchemaError(f"{place}: {hint!r} cannot be resolved; define the type at module level, before its use")
        simple = SIMPLE.get(hint) if _is_hashable(hint) else None
        if simple is not None:
            return simple
        origin = typing.get_origin(hint)
        if origin is None:
            return self._of_class(hint, place)
        return self._of_generic(origin, typing.get_args(hint), hint, place)

    def document(self, schema: Schema) -> Schema:
        """The whole schema document: with its definitions."""
        return {**schema, "definitions": self.definitions} if self.definitions else schema

    def _of_generic(self, origin: Any, arguments: tuple[Any, ...], hint: Any, place: str) -> Shape:
        if origin is typing.Annotated:
            return self._annotated(arguments, place)
        if origin is Literal:
            return of_values(list(arguments), place)
        if origin in _UNION_TYPES:
            return self._union(arguments, place)
        if _name(origin) in ("Required", "NotRequired", "ReadOnly"):
            return self.of(arguments[0], place)
        if isinstance(origin, type) and dataclasses.is_dataclass(origin):
            raise SchemaError(f"{place}: {hint} is a generic dataclass; say a dataclass without type parameters")
        if origin is tuple:
            if len(arguments) == 2 and arguments[1] is Ellipsis:
                return self._array(arguments[0], place, tuple, False)
            raise SchemaError(f"{place}: {hint} has a schema for each item, which the strict profile does not have; "
                              "say a dataclass, list[T] or tuple[T, ...]")
        if origin in (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection, collections.abc.MutableSequence):
            return self._array(arguments[0], place, list, False)
        if origin in (set, frozenset, collections.abc.Set, collections.abc.MutableSet):
            return self._array(arguments[0], place, frozenset if origin in (frozenset, collections.abc.Set) else set, True)
        if origin in (dict, collections.abc.Mapping, collections.abc.MutableMapping):
            return self._mapping(arguments[0], arguments[1], place)
        raise SchemaError(f"{place}: {hint} has no schema in the strict profile")

    def _of_class(self, hint: Any, place: str) -> Shape:
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return of_enum(hint, place)
        if is_typed_dict(hint):
            return self._named(hint, place, self._typed_dict)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return self._named(hint, place, self._dataclass)
        if isinstance(hint, type) and callable(getattr(hint, "model_json_schema", None)):
            return self._model(hint, place)
        if callable(hint) and hasattr(hint, "__supertype__"):
            return self.of(hint.__supertype__, place)
        if _name(hint) == "TypeAliasType" or type(hint).__name__ == "TypeAliasType":
            return self.of(hint.__value__, place)
        bare = {list: "list[T]", dict: "dict[str, T]", set: "set[T]", frozenset: "frozenset[T]", tuple: "tuple[T, ...]"}
        if _is_hashable(hint) and hint in bare:
            raise SchemaError(f"{place}: {_name(hint)} does not say what is in it; say {bare[hint]}")
        raise SchemaError(f"{place}: {_name(hint)} has no schema in the strict profile{_INSTEAD.get(_name(hint), '')}")

    def _annotated(self, arguments: tuple[Any, ...], place: str) -> Shape:
        shape = self.of(arguments[0], place)
        keywords: Schema = {}
        for note in arguments[1:]:
            if isinstance(note, str):
                keywords["description"] = note
            elif isinstance(note, Keywords):
                keywords.update(note.keywords)
        check_strict(keywords, place)
        if "$ref" in shape.schema and keywords:
            return Shape({"allOf": [shape.schema], **keywords}, shape.decode)
        return Shape({**shape.schema, **keywords}, shape.decode)

    def _union(self, members: tuple[Any, ...], place: str) -> Shape:
        shapes = [self.of(member, f"{place} | {_name(member)}") for member in members]

        def decode(value: Any, path: str) -> Any:
            reasons = []
            for shape in shapes:
                try:
                    return shape.decode(value, path)
                except DecodeError as error:
                    reasons.append(error)
            # The member that got furthest knows best what is wrong.
            raise max(reasons, key=lambda error: len(error.path))

        return Shape({"anyOf": [shape.schema for shape in shapes]}, decode)

    def _array(self, item: Any, place: str, make: Callable[[Any], Any], is_set: bool) -> Shape:
        shape = self.of(item, f"{place}[]")

        def decode(value: Any, path: str) -> Any:
            expect(isinstance(value, list), path, "is no array")
            return make([shape.decode(member, f"{path}/{index}") for index, member in enumerate(value)])

        schema: Schema = {"type": "array", "items": shape.schema}
        return Shape({**schema, "uniqueItems": True} if is_set else schema, decode)

    def _mapping(self, key: Any, member: Any, place: str) -> Shape:
        if key is not str:
            raise SchemaError(f"{place}: a dict with keys of {_name(key)}; JSON has only text keys, say dict[str, T]")
        shape = self.of(member, f"{place}[…]")

        def decode(value: Any, path: str) -> Any:
            expect(isinstance(value, dict), path, "is no object")
            return {name: shape.decode(inner, f"{path}/{token(name)}") for name, inner in value.items()}

        return Shape({"type": "object", "additionalProperties": shape.schema}, decode)

    def _named(self, kind: Any, place: str, make: Callable[[Any, str], Shape]) -> Shape:
        """The shape of a class. One that contains itself becomes a definition."""
        if kind in self._open:
            name = self._recursive.setdefault(kind, self._free_name(kind.__name__))
            made = self._open[kind]
            return Shape({"$ref": f"#/definitions/{name}"}, lambda value, path: made[0].decode(value, path))
        made = self._open[kind] = []
        shape = make(kind, f"{place} → {kind.__name__}")
        made.append(shape)
        del self._open[kind]
        if kind not in self._recursive:
            return shape
        name = self._recursive[kind]
        self.definitions[name] = shape.schema
        return Shape({"$ref": f"#/definitions/{name}"}, shape.decode)

    def _free_name(self, name: str) -> str:
        used = set(self._recursive.values()) | self.definitions.keys()
        number = 2
        free = name
        while free in used:
            free, number = f"{name}{number}", number + 1
        return free

    def _dataclass(self, kind: Any, place: str) -> Shape:
        hints = resolved(kind, place)
        fields = [field for field in dataclasses.fields(kind) if field.init]
        members = {field.name: self.of(hints[field.name], f"{place}.{field.name}") for field in fields}
        required = [field.name for field in fields if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING]
        defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
        return object_shape(members, required, defaults, lambda values: kind(**values), _doc(kind))

    def _typed_dict(self, kind: Any, place: str) -> Shape:
        hints = resolved(kind, place)
        members = {name: self.of(hint, f"{place}.{name}") for name, hint in hints.items()}
        required = [name for name in hints if name in kind.__required_keys__ and not _is_marked(kind, name, "NotRequired")]
        return object_shape(members, required, {}, lambda values: values, _doc(kind))

    def _model(self, model: Any, place: str) -> Shape:
        """A pydantic model: its own schema, if that is within the strict profile, and its own validation."""
        schema = model.model_json_schema(ref_template="#/definitions/{model}", mode=self._mode)
        definitions = schema.pop("$defs", {})
        check_strict(schema, f"{place} → {model.__name__}")
        for name, definition in definitions.items():
            check_strict(definition, f"{place} → {name}")
            if self.definitions.setdefault(name, definition) != definition:
                raise SchemaError(f"{place}: two models are called {name}; give one of them another name")

        def decode(value: Any, path: str) -> Any:
            try:
                return model.model_validate(value)
            except ValueError as error:
                raise _of_pydantic(error, path) from None

        return Shape(schema, decode)


def object_shape(members: dict[str, Shape], required: list[str], defaults: dict[str, Any], make: Callable[[dict[str, Any]], Any],
                 description: Optional[str]) -> Shape:
    """An object with these members and no others."""
    properties: Schema = {}
    for name, shape in members.items():
        properties[name] = shape.schema
        if name in defaults:
            default = _json.plain(defaults[name])
            properties[name] = {**({"allOf": [shape.schema]} if "$ref" in shape.schema else shape.schema), "default": default}
    schema: Schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if not required:
        del schema["required"]
    if description:
        schema["description"] = description

    def decode(value: Any, path: str) -> Any:
        expect(isinstance(value, dict), path, "is no object")
        for name in value:
            expect(name in members, f"{path}/{token(name)}", "is not expected")
        for name in required:
            expect(name in value, f"{path}/{token(name)}", "is required")
        values = {name: members[name].decode(member, f"{path}/{token(name)}") for name, member in value.items()}
        try:
            return make(values)
        except (TypeError, ValueError) as error:
            # The class has rules of its own, such as those of a __post_init__.
            raise DecodeError(path, str(error)) from None

    return Shape(schema, decode)


def resolved(of: Any, place: str) -> dict[str, Any]:
    """The type hints of a class or function, as types."""
    try:
        return typing.get_type_hints(of, include_extras=True)
    except (NameError, TypeError) as error:
        raise SchemaError(f"{place}: a type hint cannot be resolved: {error}") from None


def _of_pydantic(error: ValueError, path: str) -> DecodeError:
    listing = getattr(error, "errors", None)
    first = listing()[0] if callable(listing) else None
    if not isinstance(first, dict):
        return DecodeError(path, "does not fit its model")
    return DecodeError(path + "".join(f"/{token(str(part))}" for part in first.get("loc", ())), str(first.get("msg", "does not fit its model")))


def _doc(kind: Any) -> Optional[str]:
    text = kind.__doc__
    # A dataclass without a text of its own gets its signature for one.
    if not text or text.startswith(f"{kind.__name__}("):
        return None
    return first_paragraph(text)


def first_paragraph(text: Optional[str]) -> Optional[str]:
    """The first paragraph of a docstring, on one line."""
    return " ".join(text.strip().split("\n\n")[0].split()) if text and text.strip() else None


def _name(hint: Any) -> str:
    return getattr(hint, "__name__", None) or getattr(hint, "_name", None) or str(hint)


def _is_hashable(hint: Any) -> bool:
    try:
        hash(hint)
    except TypeError:
        return False
    return True


def is_typed_dict(hint: Any) -> bool:
    """Whether it is a TypedDict."""
    return isinstance(hint, type) and issubclass(hint, dict) and hasattr(hint, "__required_keys__")


def _is_marked(kind: Any, name: str, marker: str) -> bool:
    """Whether a member has a marker that a string annotation hid from the class."""
    hint = resolved(kind, kind.__name__).get(name)
    return _name(typing.get_origin(hint)) == marker


_INSTEAD = {
    "date": "; say str, or datetime",
    "time": "; say str, or datetime",
    "timedelta": "; say a number of milliseconds",
    "bytes": "; say str with base64url text",
    "bytearray": "; say str with base64url text",
    "Path": "; say str",
    "complex": "; say a dataclass of two numbers",
}
