"""What an agent serves: a function with its declaration, made from its type hints or from schemas that are given."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, Callable, Optional, Sequence

from . import _json
from ._context import Context
from ._hints import Shapes, first_paragraph, is_typed_dict, object_shape, resolved
from ._values import DecodeError, Shape
from .errors import CallError, SchemaError

Handler = Callable[..., Any]


class Capability:
    """One version of one capability: its declaration and its function."""

    def __init__(self, declaration: dict[str, Any], function: Handler, arguments: Callable[[Any, Context], tuple[Sequence[Any], dict[str, Any]]]) -> None:
        self.declaration = declaration
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self._arguments = arguments

    @property
    def id(self) -> str:
        """`name:version`."""
        return f"{self.declaration['name']}:{self.declaration['version']}"

    def bound(self, params: Any, context: Context) -> tuple[Sequence[Any], dict[str, Any]]:
        """The arguments of a call.

        Raises `CallError` 4004 for params that are no values of the function's types: the schema can say less than these.
        """
        try:
            return self._arguments(params, context)
        except DecodeError as error:
            violation = {"path": error.path, "message": error.message, "keyword": "type"}
            raise CallError(4004, "params do not fit the handler's types",
                            {"violations": [violation], "schema_side": "request"}) from None


def from_hints(declaration: dict[str, Any], function: Handler) -> Capability:
    """A capability whose schemas are the function's type hints.

    Raises `SchemaError` with file, line and parameter for what the strict profile cannot say.
    """
    place = f"{_place(function)}: {declaration['name']}"
    hints = resolved(function, place)
    parameters, context_name = _parameters(function, hints, place)
    whole = _whole(parameters, hints)
    shapes = Shapes()
    if whole is not None:
        shape = shapes.of(hints[whole], f"{place}: parameter {whole}")
    else:
        shape = _by_name(shapes, parameters, hints, place)
    declaration["inputSchema"] = shapes.document(shape.schema)
    if "return" not in hints:
        raise SchemaError(f"{place}: the function has no return type; say -> Any for a result that nobody checks")
    outputs = Shapes("serialization")
    output = outputs.of(hints["return"], f"{place}: return type")
    if output.schema:
        declaration["outputSchema"] = outputs.document(output.schema)
    if "description" not in declaration and function.__doc__:
        declaration["description"] = first_paragraph(function.__doc__)

    def arguments(params: Any, context: Context) -> tuple[Sequence[Any], dict[str, Any]]:
        value = shape.decode({} if params is None and shape.schema.get("type") == "object" else params, "")
        named = {whole: value} if whole is not None else value
        return (), {**named, context_name: context} if context_name is not None else named

    return Capability(declaration, function, arguments)


def from_schemas(declaration: dict[str, Any], function: Handler) -> Capability:
    """A capability whose function takes the params as they are, and the context if it has a second parameter."""
    takes_context = len(inspect.signature(function).parameters) > 1
    return Capability(declaration, function, lambda params, context: ((params, context) if takes_context else (params,), {}))


def _parameters(function: Handler, hints: dict[str, Any], place: str) -> tuple[list[inspect.Parameter], Optional[str]]:
    """The parameters that are params, and the name of the one that gets the context."""
    context_name = None
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        if hints.get(name) is Context:
            context_name = name
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise SchemaError(f"{place}: parameter {parameter}: a schema names each parameter; say a dataclass or dict[str, T]")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise SchemaError(f"{place}: parameter {name}: params have names; leave out the slash")
        if name not in hints:
            raise SchemaError(f"{place}: parameter {name} has no type; say {name}: Any for a value that nobody checks")
        parameters.append(parameter)
    return parameters, context_name


def _whole(parameters: list[inspect.Parameter], hints: dict[str, Any]) -> Optional[str]:
    """The name of the only parameter, where that is a class of members: then it is the params, not a member of them."""
    if len(parameters) != 1 or parameters[0].default is not inspect.Parameter.empty:
        return None
    hint = hints[parameters[0].name]
    is_record = dataclasses.is_dataclass(hint) or is_typed_dict(hint) or callable(getattr(hint, "model_json_schema", None))
    return parameters[0].name if is_record else None


def _by_name(shapes: Shapes, parameters: list[inspect.Parameter], hints: dict[str, Any], place: str) -> Shape:
    members = {each.name: shapes.of(hints[each.name], f"{place}: parameter {each.name}") for each in parameters}
    required = [each.name for each in parameters if each.default is inspect.Parameter.empty]
    defaults = {}
    for each in parameters:
        if each.default is not inspect.Parameter.empty:
            try:
                defaults[each.name] = _json.plain(each.default)
            except (TypeError, ValueError) as error:
                raise SchemaError(f"{place}: parameter {each.name}: its default is no JSON value: {error}") from None
    return object_shape(members, required, defaults, lambda values: values, None)


def _place(function: Handler) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)
