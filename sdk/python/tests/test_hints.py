"""Type hints become schemas of the strict profile; what it cannot say is an error at import, with the place."""

import dataclasses
import datetime
import enum
import inspect
import pathlib
import sys
import uuid
from decimal import Decimal
from typing import Annotated, Any, Callable, Dict, FrozenSet, List, Literal, NamedTuple, NewType, Optional, Sequence, Set, Tuple, TypedDict, Union

import pytest

import capd
from capd import _json
from capd._hints import Shapes
from capd._strict import check_strict
from capd._values import DecodeError


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Item:
    """A thing that is sold.

    More about it.
    """

    name: str
    price: Decimal = Decimal("1.5")
    colour: Optional[Colour] = None


@dataclasses.dataclass
class Node:
    value: int
    children: "List[Node]" = dataclasses.field(default_factory=list)


class Base(TypedDict):
    id: int


class Partial(Base, total=False):
    note: str


UserId = NewType("UserId", str)

STRING: Dict[str, Any] = {"type": "string"}
INTEGER: Dict[str, Any] = {"type": "integer"}


@pytest.mark.parametrize(("hint", "schema"), [
    (str, STRING), (int, INTEGER), (float, {"type": "number"}), (Decimal, {"type": "number"}), (bool, {"type": "boolean"}),
    (None, {"type": "null"}), (Any, {}), (object, {}), (UserId, STRING),
    (uuid.UUID, {"type": "string", "format": "uuid"}), (datetime.datetime, {"type": "string", "format": "date-time"}),
    (Literal["a", 1, None], {"enum": ["a", 1, None]}), (Colour, {"enum": ["red", "blue"]}),
    (Optional[int], {"anyOf": [INTEGER, {"type": "null"}]}), (Union[int, str], {"anyOf": [INTEGER, STRING]}),
    (List[int], {"type": "array", "items": INTEGER}), (Sequence[int], {"type": "array", "items": INTEGER}),
    (Tuple[int, ...], {"type": "array", "items": INTEGER}), (Set[str], {"type": "array", "items": STRING, "uniqueItems": True}),
    (FrozenSet[str], {"type": "array", "items": STRING, "uniqueItems": True}),
    (Dict[str, int], {"type": "object", "additionalProperties": INTEGER}),
    (Annotated[str, "A word.", capd.Keywords(pattern="^a", maxLength=3)], {"type": "string", "description": "A word.", "pattern": "^a", "maxLength": 3}),
    (Item, {"type": "object", "description": "A thing that is sold.", "required": ["name"], "additionalProperties": False, "properties": {
        "name": STRING, "price": {"type": "number", "default": Decimal("1.5")},
        "colour": {"anyOf": [{"enum": ["red", "blue"]}, {"type": "null"}], "default": None}}}),
    (Partial, {"type": "object", "required": ["id"], "additionalProperties": False, "properties": {"id": INTEGER, "note": STRING}}),
])
def test_a_hint_becomes_its_schema(hint: Any, schema: Any) -> None:
    shapes = Shapes()
    made = shapes.document(shapes.of(hint, "here").schema)
    assert made == schema
    check_strict(made, "here")


def test_a_class_that_contains_itself_becomes_a_definition() -> None:
    shapes = Shapes()
    shape = shapes.of(Node, "here")
    assert shapes.document(shape.schema) == {"$ref": "#/definitions/Node", "definitions": {"Node": {
        "type": "object", "required": ["value"], "additionalProperties": False,
        "properties": {"value": INTEGER, "children": {"type": "array", "items": {"$ref": "#/definitions/Node"}}}}}}
    assert shape.decode({"value": 1, "children": [{"value": 2}]}, "") == Node(1, [Node(2)])


class Pair(NamedTuple):
    a: int
    b: int


@dataclasses.dataclass
class Where:
    path: pathlib.Path


@pytest.mark.parametrize(("hint", "message"), [
    (datetime.date, "date has no schema in the strict profile; say str, or datetime"),
    (bytes, "bytes has no schema in the strict profile; say str with base64url text"),
    (Tuple[int, str], "has a schema for each item"), (Dict[int, str], "keys of int; JSON has only text keys"),
    (list, r"list does not say what is in it; say list\[T\]"), (dict, "dict does not say"), (Pair, "Pair has no schema"),
    (Where, r"here → Where.path: Path has no schema in the strict profile; say str"), (Callable[[], int], "no schema in the strict profile"),
    (Literal[b"x"], "b'x' is no JSON value"), (List[Dict[str, complex]], r"here\[\]\[…\]: complex has no schema"),
    (Annotated[str, capd.Keywords(contentEncoding="base64")], "does not have the keyword 'contentEncoding'"),
    (Annotated[str, capd.Keywords(format="phone")], "does not have the format 'phone'"),
    ("Nowhere", "cannot be resolved"),
])
def test_what_the_strict_profile_cannot_say_is_an_error_with_its_place(hint: Any, message: str) -> None:
    with pytest.raises(capd.SchemaError, match=message) as caught:
        Shapes().of(hint, "here")
    assert str(caught.value).startswith("here")


@pytest.mark.parametrize(("hint", "json", "value"), [
    (int, "2.0", 2), (float, "3", 3), (Decimal, "0.10000000000000000001", Decimal("0.10000000000000000001")), (Colour, '"red"', Colour.RED),
    (Item, '{"name": "a", "colour": "blue"}', Item("a", colour=Colour.BLUE)), (Optional[Item], "null", None),
    (Set[int], "[1, 1]", {1}), (Tuple[int, ...], "[1, 2]", (1, 2)), (Union[int, str], '"x"', "x"), (Dict[str, List[int]], '{"a": [1]}', {"a": [1]}),
    (uuid.UUID, '"00000000-0000-0000-0000-000000000001"', uuid.UUID(int=1)), (Partial, '{"id": 1}', {"id": 1}),
    (datetime.datetime, '"2026-01-02T03:04:05Z"', datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)),
])
def test_json_becomes_a_value_of_its_type(hint: Any, json: str, value: Any) -> None:
    decoded = Shapes().of(hint, "here").decode(_json.loads(json), "")
    assert decoded == value and type(decoded) is type(value)


@pytest.mark.parametrize(("hint", "json", "path"), [
    (int, "true", "/"), (int, "1.5", "/"), (float, '"1"', "/"), (str, "1", "/"), (Colour, '"green"', "/"), (Item, '{"name": 1}', "/name"),
    (Item, "{}", "/name"), (Item, '{"name": "a", "colour": "green"}', "/colour"), (Item, '{"name": "a", "size": 1}', "/size"),
    (List[Item], '[{"name": "a"}, 3]', "/1"), (Dict[str, int], '{"a/b~": "x"}', "/a~1b~0"), (uuid.UUID, '"x"', "/"), (datetime.datetime, '"noon"', "/"),
])
def test_json_of_another_type_is_refused_at_its_place(hint: Any, json: str, path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        Shapes().of(hint, "here").decode(_json.loads(json), "")
    assert caught.value.path == path


def serve(function: Any) -> Dict[str, Any]:
    agent = capd.Agent("/nowhere")
    agent.capability("com.acme.f")(function)
    declaration, = agent.declarations()
    return declaration


def test_a_function_is_declared_from_its_hints_and_its_docstring() -> None:
    def translate(text: str, call: capd.Context, to: Literal["de", "fr"] = "de") -> List[str]:
        """Translates
        a text.

        At length."""
        return [text]

    assert serve(translate) == {
        "name": "com.acme.f", "version": "1.0.0", "description": "Translates a text.",
        "inputSchema": {"type": "object", "required": ["text"], "additionalProperties": False,
                        "properties": {"text": STRING, "to": {"enum": ["de", "fr"], "default": "de"}}},
        "outputSchema": {"type": "array", "items": STRING}}


def test_one_parameter_that_is_a_record_is_the_params() -> None:
    def sell(item: Item) -> Any:
        return item

    declaration = serve(sell)
    assert declaration["inputSchema"]["required"] == ["name"] and "outputSchema" not in declaration


def test_an_error_at_import_names_file_line_and_parameter() -> None:
    def when(day: datetime.date) -> None: ...

    line = inspect.getsourcelines(when)[1]
    with pytest.raises(capd.SchemaError) as caught:
        serve(when)
    assert str(caught.value).startswith(f"{__file__}:{line}: com.acme.f: parameter day: date has no schema")


def test_a_function_that_a_schema_cannot_name_is_refused() -> None:
    def no_type(text) -> None: ...  # type: ignore[no-untyped-def]

    def no_return(text: str): ...  # type: ignore[no-untyped-def]

    def many(*texts: str) -> None: ...

    def position(text: str, /) -> None: ...

    def default(text: Any = object()) -> None: ...

    for function, message in ((no_type, "parameter text has no type"), (no_return, "no return type"), (many, "names each parameter"),
                              (position, "leave out the slash"), (default, "default is no JSON value")):
        with pytest.raises(capd.SchemaError, match=message):
            serve(function)


@pytest.mark.skipif(sys.version_info < (3, 10), reason="X | Y is of 3.10")
def test_a_union_with_a_bar_is_a_union() -> None:
    assert Shapes().of(eval("int | None"), "here").schema == {"anyOf": [INTEGER, {"type": "null"}]}
