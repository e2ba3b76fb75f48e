"""The schema of a Python function's arguments, and their validator.

pydantic derives the schema, validates strictly and builds the Python values from JSON, after `coercion`. It is imported
when the first schema is derived. Undeclared members are refused, unless a pydantic model in the schema allows them.

Law: the validator enforces exactly the schema. Defaults are Python's own values, never read back from JSON.
"""

from __future__ import annotations

import inspect
import typing
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

import msgspec

from callboard.errors import ToolDefinitionError
from callboard.schema.coercion import as_object, coerce_arguments, compile_coercion, encode
from callboard.schema.docstring import read_docstring
from callboard.schema.errors import PYDANTIC, ArgumentsInvalid, Path, shorten
from callboard.schema.explain_errors import explain
from callboard.schema.subschemas import Schema, every, rebuild

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Function: TypeAlias = Callable[..., Any]

_TAKEN_OUT: Final = {"title", "discriminator", "uniqueItems", "$defs"}
_ORDER: Final = ("type", "properties", "required", "additionalProperties")
_DEFINED: Final = "#/$defs/"
_REFUSED: Final = {
    inspect.Parameter.VAR_POSITIONAL: ("takes any number of positional arguments", "take a list instead"),
    inspect.Parameter.VAR_KEYWORD: ("takes any keyword", "name each parameter, or take a dict instead"),
    inspect.Parameter.POSITIONAL_ONLY: ("is positional-only", "models name their arguments: remove the `/`"),
}


_SEVERAL: Final = ((inspect.isgeneratorfunction, "a generator"), (inspect.isasyncgenfunction, "an async generator"))
_RECEIVERS: Final = ("self", "cls")
_LAZY: Final = (Iterable, Iterator, Generator)
_CHOICES: Final = (str, int, float, bool, type(None))


class Derived:
    """A function's `description`, `schema` and argument validator, derived from its signature.

    `adapter` is pydantic's, and `defaults` are those of the parameters.
    """

    __slots__ = (
        "_coerce", "_coerces_later", "_defaults", "_extra", "_lenient", "_parse", "_refusal", "description", "schema",
    )  # fmt: skip

    def __init__(
        self, description: str, schema: Schema, adapter: TypeAdapter[Any], defaults: Mapping[str, Any]
    ) -> None:
        from pydantic import ValidationError  # noqa: PLC0415 - the adapter is pydantic's, so it is imported by now

        self.description = description
        self.schema = schema
        self._coerce = compile_coercion(schema, fill=False)
        self._extra: Literal["forbid"] | None = None if is_open(schema) else "forbid"
        self._lenient = has_numeric_choice(schema)  # because pydantic accepts true for 1 there
        # Valid arguments need no coercion, except a null for an absent member. The user's code runs once, on coerced values.
        self._coerces_later = not (self._lenient or _has_user_code(adapter.core_schema))
        self._parse = adapter.validator.validate_json
        self._refusal = ValidationError
        self._defaults = defaults

    def validate(self, arguments: Mapping[str, Any], /) -> dict[str, Any]:
        """Return the `arguments` as Python values, with defaults, ready to pass as keywords.

        Raises ArgumentsInvalid with every mistake.
        """
        arguments = as_object(arguments)
        encoded = encode(arguments)
        if self._coerces_later and b"null" not in encoded:
            try:
                return {**self._defaults, **self._parse(encoded, strict=True, extra=self._extra)}
            except self._refusal:
                pass
        coerced = coerce_arguments(self._coerce, arguments)
        if coerced is not arguments:
            encoded = encode(coerced)
        try:
            values = self._parse(encoded, strict=True, extra=self._extra)
        except self._refusal as error:
            raise ArgumentsInvalid(self._mistakes(encoded, error)) from None
        if self._lenient and (mistakes := explain(self.schema, msgspec.json.decode(encoded))):
            raise ArgumentsInvalid(mistakes)
        return {**self._defaults, **values}

    def _mistakes(self, encoded: bytes, error: Any) -> list[tuple[Path, str]]:
        """Explain each parameter that pydantic refused, by the schema or else in pydantic's own words."""
        explained: dict[Any, list[tuple[Path, str]]] = {}
        for path, message in explain(self.schema, msgspec.json.decode(encoded)):
            explained.setdefault(path[0] if path else None, []).append((path, message))
        own: dict[Any, list[tuple[Path, str]]] = {}
        for one in error.errors(include_url=False, include_context=False, include_input=False):
            parameter = one["loc"][0] if one["loc"] else None
            own.setdefault(parameter, []).append((one["loc"], PYDANTIC.get(one["type"]) or shorten(one["msg"])))
        names = explained | own if self._lenient else own
        return [mistake for name in names for mistake in explained.get(name) or own[name]]


def check_signature(function: Function, *, skip: Collection[str] = frozenset()) -> None:
    """Raise ToolDefinitionError if `function` cannot be a tool.

    Only its signature is checked, without the names `skip`.
    """
    _parameters(function, skip)


def derive(function: Function, *, skip: Collection[str] = frozenset()) -> Derived:
    """Return the schema, description and validator of `function`; `skip` names parameters that are not arguments.

    Raises ToolDefinitionError with the function and the parameter.
    """
    parameters = _parameters(function, skip)
    documented = read_docstring(_documented_function(function).__doc__)
    defaults = {
        name: parameter.default for name, parameter in parameters.items() if parameter.default is not parameter.empty
    }
    fields = {
        name: _add_description(_resolve(function, parameter), documented.parameters.get(name))
        for name, parameter in parameters.items()
    }
    for name, annotation in fields.items():
        _refuse_lazy(function, name, annotation)
    try:
        adapter, schema = _derive(fields, defaults.keys())
    except Exception as error:  # pydantic may raise anything for an odd annotation
        for name, annotation in fields.items():
            _check_supported(function, name, annotation)
        raise _mistake(function, "", _first_line(error)) from error
    for name, default in defaults.items():
        schema["properties"][name].update(_as_json(default))
    return Derived(documented.description, schema, adapter, defaults)


def derive_output(function: Function) -> dict[str, Any] | None:
    """Return the schema of the object that `function` returns, or None without such an annotation."""
    function = inspect.unwrap(_documented_function(function))
    returned = inspect.signature(function).return_annotation
    if returned is inspect.Signature.empty:
        return None
    from pydantic import TypeAdapter  # noqa: PLC0415 - as above

    parameter = inspect.Parameter("returned", inspect.Parameter.KEYWORD_ONLY, annotation=returned)
    try:
        schema = TypeAdapter(_resolve(function, parameter)).json_schema(mode="serialization", by_alias=False)
    except Exception:  # noqa: BLE001  # pydantic may raise anything for an odd annotation
        return None
    return schema if schema.get("type") == "object" and "properties" in schema else None


def _parameters(function: Function, skip: Collection[str]) -> dict[str, inspect.Parameter]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        hint = "wrap it in a function of yours"
        raise _mistake(function, "", "has no signature that Python can tell", hint) from None
    for is_kind, what in _SEVERAL:
        if is_kind(function):
            raise _mistake(function, "", f"is {what}", "return a list: a model reads one result")
    for name, parameter in signature.parameters.items():
        if parameter.kind in _REFUSED and (name not in skip or parameter.kind is parameter.POSITIONAL_ONLY):
            raise _mistake(function, name, *_REFUSED[parameter.kind])
    parameters = {name: one for name, one in signature.parameters.items() if name not in skip}
    for name, parameter in parameters.items():
        if parameter.annotation is parameter.empty and name in _RECEIVERS:
            hint = f"make the tool of the bound method: tool(instance.{_name(function)})"
            raise _mistake(function, name, "is a method without its object", hint)
        if parameter.annotation is parameter.empty:
            raise _mistake(function, name, "has no annotation", f"say what it is: `{name}: str`")
        if type(parameter.default).__module__ == "pydantic.fields":
            hint = f"write `{name}: Annotated[..., Field(...)]`, and a plain default if there is one"
            raise _mistake(function, name, "has a pydantic Field as its default", hint)
    return parameters


def _resolve(function: Function, parameter: inspect.Parameter) -> Any:
    """Resolve an annotation, with the metadata of `Annotated`. Each is resolved alone, because others may fail."""
    holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)[parameter.name]
    except Exception as error:  # noqa: BLE001  # an annotation may be any expression
        hint = "import or define it at the top of the module, outside of TYPE_CHECKING"
        message = f"the annotation {parameter.annotation!r} cannot be resolved: {error}"
        raise _mistake(function, parameter.name, message, hint) from None


def _add_description(annotation: Any, documented: str | None) -> Any:
    """Add the description for pydantic; `Annotated` has precedence over the docstring."""
    from pydantic import Field  # noqa: PLC0415 - 60 ms that only a derived schema needs

    added = getattr(annotation, "__metadata__", ())
    texts = [text for text in added if isinstance(text, str)]
    if not texts and any(getattr(one, "description", None) for one in added):
        return annotation
    description = texts[0] if texts else documented
    return Annotated[annotation, Field(description=description)] if description else annotation


def _derive(fields: Mapping[str, Any], optional: Collection[str]) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    from pydantic import ConfigDict, TypeAdapter  # noqa: PLC0415 - as above
    from typing_extensions import TypedDict  # noqa: PLC0415 - pydantic requires this one on 3.11

    members = {name: typing.NotRequired[kind] if name in optional else kind for name, kind in fields.items()}
    arguments = TypedDict("Arguments", members)  # type: ignore[misc]  # made at run time
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]  # pydantic's own way
    adapter: TypeAdapter[Any] = TypeAdapter(arguments)
    return adapter, simplify(_json_schema(adapter))


def _json_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    from pydantic.json_schema import GenerateJsonSchema  # noqa: PLC0415 - as above

    class Quiet(GenerateJsonSchema):
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's own form

    return adapter.json_schema(schema_generator=Quiet)


def _refuse_lazy(function: Function, name: str, annotation: Any) -> None:
    """Raise ToolDefinitionError for types that pydantic validates only during iteration, which is within the tool."""
    origin = typing.get_origin(annotation) or annotation
    if origin in _LAZY:
        message = "is an iterable, which is not validated before the call"
        raise _mistake(function, name, message, f"write `{name}: list[...]`")
    if origin is type:
        raise _mistake(function, name, "is a class, which JSON has not", "take a text, and look the class up by it")
    if isinstance(origin, type) and issubclass(origin, Enum):
        if not len(origin):
            raise _mistake(function, name, "has no choices", "take a text")
        odd = [each.value for each in origin if not isinstance(each.value, _CHOICES)]
        if odd:
            message = f"has the choice {odd[0]!r}, which no JSON value is equal to"
            raise _mistake(function, name, message, "use strings or numbers as values")
    if origin is not Literal:
        for each in typing.get_args(annotation):
            _refuse_lazy(function, name, each)


def _check_supported(function: Function, name: str, annotation: Any) -> None:
    try:
        _derive({name: annotation}, ())
    except Exception as error:
        hint = (
            "use what JSON can say: str, int, float, bool, list, dict, Literal, Enum, a dataclass or a pydantic model"
        )
        if "typing_extensions.TypedDict" in str(error):
            hint = "import TypedDict from typing_extensions"
        raise _mistake(function, name, _first_line(error), hint) from error


def _as_json(default: Any) -> dict[str, Any]:
    """Return the default as a member of the schema, or nothing if JSON cannot express it."""
    from pydantic_core import to_json  # noqa: PLC0415 - as above

    try:
        return {"default": msgspec.json.decode(to_json(default))}
    except ValueError:
        return {}


def _documented_function(function: Function) -> Function:
    """Return the function with the docstring. For a partial that is the function that it calls, not functools' own."""
    while isinstance(function, partial):
        function = function.func
    return function


def _mistake(function: Function, parameter: str, message: str, hint: str = "") -> ToolDefinitionError:
    place = f"{_name(function)}({parameter})" if parameter else _name(function)
    return ToolDefinitionError(message, path=place, hint=hint)


def _name(function: Function) -> str:
    return getattr(_documented_function(function), "__name__", None) or repr(function)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def simplify(schema: Schema) -> dict[str, Any]:
    """Return pydantic's schema without parts that models do not need: titles, discriminators, `uniqueItems` (sets allow
    repeats).

    A definition that is used once moves to its place of use. Objects with declared members accept no others, unless
    `is_open`.
    """
    definitions = schema.get("$defs", {})
    uses = Counter(part["$ref"].removeprefix(_DEFINED) for part in every(schema) if "$ref" in part)
    closing = {} if is_open(schema) else {"additionalProperties": False}

    def smaller(part: Any) -> Any:
        if not isinstance(part, Mapping):
            return part
        name = part.get("$ref", "").removeprefix(_DEFINED)
        if uses[name] == 1:  # a recursive definition is used twice
            beside = {keyword: held for keyword, held in part.items() if keyword != "$ref"}
            part = {**definitions[name], **beside}
            return smaller(part)
        part = {key: held for key, held in part.items() if key not in _TAKEN_OUT}
        return rebuild({**part, **closing} if "properties" in part else part, smaller)

    small: dict[str, Any] = smaller(schema)
    ordered = {key: small[key] for key in _ORDER if key in small} | small
    shared = {name: smaller(definition) for name, definition in definitions.items() if uses[name] > 1}
    return {**ordered, "$defs": shared} if shared else ordered


def _has_user_code(schema: Any) -> bool:
    """Whether a schema of pydantic-core calls a validator, `__init__` or `__post_init__` of the user."""
    if isinstance(schema, list | tuple):
        return any(map(_has_user_code, schema))
    if not isinstance(schema, dict):
        return False
    if str(schema.get("type")).startswith("function-") or schema.get("custom_init") or schema.get("post_init"):
        return True
    return any(map(_has_user_code, schema.values()))


def is_open(schema: Schema) -> bool:
    """Whether some object with declared members accepts others, as a pydantic model can."""
    return any("properties" in part and part.get("additionalProperties", False) is not False for part in every(schema))


def has_numeric_choice(schema: Schema) -> bool:
    """Whether some value is restricted to certain values that include a number or a boolean."""
    choices = (choice for part in every(schema) for choice in (*part.get("enum", ()), part.get("const")))
    return any(isinstance(choice, int | float) for choice in choices)
