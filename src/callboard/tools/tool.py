"""A Python function that models may call: `@tool`.

Law: call the tool like the function. Its schema is derived on first use.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, partial, reduce, update_wrapper
from types import MappingProxyType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    overload,
)

import msgspec
from msgspec import Meta

from callboard.errors import CallerError, ToolDefinitionError
from callboard.schema import Derived, check_signature, derive, derive_output
from callboard.text.duration import parse_duration
from callboard.text.suggest import suggest
from callboard.tools.context import Context

Subject: TypeAlias = Literal["path", "command", "further_path"]
"""The kind of an argument that permission patterns look at."""

_UNIONS: Final = (Union, UnionType)
_AROUND: Final = ("Annotated", "Optional", "Union")
"""Names that may enclose Context in an annotation that is a string."""

P = ParamSpec("P")
R = TypeVar("R")


class ToolOptions(TypedDict, total=False):
    """Options of a tool: keywords of `@tool`, `Tool` and `Invoker`, and keys of a descriptor."""

    timeout: Annotated[float, Meta(gt=0)] | None
    """Timeout of a call, in seconds. `math.inf` means no limit; None leaves it to the ensemble."""
    idempotent: bool
    """True if a call may be repeated after a failure of the network or a timeout."""
    approval: bool
    """True if a person has to approve each call."""
    deferred: bool
    """True if results come from outside: a run ends at such a call, and continues with the result."""
    cli: Mapping[str, str] | None
    """Flags such as `-t` and their parameters, for models that write calls as commands."""
    strict: bool | None
    """True if the provider shall enforce the schema; None leaves it to the provider."""
    subjects: Mapping[str, Subject] | None
    """The parameters that are a `path` or a `command`, for permission patterns such as `bash(git status*)`.

    Patterns may deny or ask about a `further_path`, but an allowed call needs no rule for it.
    """
    cache: Mapping[str, str] | None
    """Lifetime of results for equal calls of other runs, such as `{"ttl": "1h"}`. The tool must be idempotent."""


class HasOptions:
    """The options of a tool as attributes, with their defaults."""

    timeout: float | None = None
    idempotent: bool = False
    approval: bool = False
    deferred: bool = False
    cli: Mapping[str, str] = MappingProxyType({})
    strict: bool | None = None
    subjects: Mapping[str, Subject] = MappingProxyType({})
    cache: Mapping[str, str] | None = None
    repeatable: Callable[[Mapping[str, Any]], bool] | None = None
    """Says whether a call with these arguments is idempotent, if that depends on the arguments."""
    calls: Mapping[str, str] = MappingProxyType({})
    """Wrong names that models use for the tool, with a hint for each."""

    @property
    def options(self) -> ToolOptions:
        return cast("ToolOptions", {name: getattr(self, name) for name in ToolOptions.__annotations__})

    def set_options(self, tool_name: str, options: ToolOptions) -> None:
        """Set options; None is the default. Raises ToolDefinitionError for wrong values, TypeError for wrong names."""
        for name, value in options.items():
            if name not in ToolOptions.__annotations__:
                raise TypeError(f"{type(self).__name__} has no option {name!r}")
            try:
                read = msgspec.convert({name: value}, ToolOptions)
            except msgspec.ValidationError as error:
                hint = str(error).partition(" - at")[0]
                hint += f"; subjects are {', '.join(get_args(Subject))}" if name == "subjects" else ""
                raise ToolDefinitionError(f"{name}={value!r} is not valid", path=tool_name, hint=hint) from None
            setattr(self, name, getattr(HasOptions, name) if value is None else read[name])  # type: ignore[literal-required]
        if self.cache is not None:
            can_repeat = self.idempotent or self.repeatable is not None
            _check_cache(tool_name, self.cache, can_repeat=can_repeat)


class Tool(HasOptions, Generic[P, R]):
    """A `function` that models can call. Created with `@tool`, which describes the `options`.

    `name` and `description` default to the function's name and docstring. `schema` is the JSON Schema of its arguments.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        if not callable(function):
            raise ToolDefinitionError(f"{function!r} is not a function", hint="decorate a function with @tool")
        named = _without_partial(function)
        self.function = function
        self.name = name or str(getattr(named, "__name__", type(named).__name__))
        check_words(self.name, description)
        self.set_options(self.name, options)
        self._given_description = description
        contexts = context_parameters(function)
        if len(contexts) > 1:
            message = f"{' and '.join(contexts)} are both annotated Context"
            raise ToolDefinitionError(message, path=self.name, hint="a tool has one context: remove the others")
        self.context_parameter = contexts[0] if contexts else None
        self._skip = frozenset(contexts)
        check_signature(function, skip=self._skip)
        update_wrapper(self, named, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    @property
    def is_async(self) -> bool:
        """Whether the caller has to await a call."""
        return is_async(self.function)

    @cached_property
    def _derived(self) -> Derived:
        return derive(self.function, skip=self._skip)

    @property
    def description(self) -> str:
        """Description of the tool for models."""
        return self._derived.description if self._given_description is None else self._given_description

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the tool's arguments."""
        return self._derived.schema

    @cached_property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of the tool's results, if the annotation says that they are objects."""
        return derive_output(self.function)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `arguments` as keywords, coerced to their Python types. Raises ArgumentsInvalid."""
        return self._derived.validate(arguments)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *, name: str | None = ..., description: str | None = ..., **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Return the tool of `function`: `@tool` or `@tool(timeout=5, idempotent=True)`.

    Every parameter needs an annotation; `*args` and `**kwargs` cannot be described to a model. A parameter with the
    annotation `Context` gets the run's context and is not in the schema. Raises ToolDefinitionError.

    The `options` are `name` and `description` (by default the function's name and docstring), and all `ToolOptions`.
    """
    if function is None:
        return lambda decorated: Tool(decorated, **options)
    return Tool(function, **options)


def check_subjects(subjects: Mapping[str, Subject], names: Collection[str], path: str) -> None:
    """Raise ToolDefinitionError for a subject that is not an argument: a rule for it would never match."""
    for name in subjects:
        if name not in names:
            raise ToolDefinitionError(f"no argument {name!r}", path=f"{path}: subjects", hint=suggest(name, names))


def is_async(function: Callable[..., Any]) -> bool:
    """Whether the caller has to await a call of the function."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  # an object's own async __call__


def context_parameters(function: Callable[..., Any]) -> list[str]:
    """Return the parameters with the annotation `Context`, `Context | None` or `Annotated[Context, ...]`.

    Annotations may be strings. The list is empty if the function has no signature.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    names = getattr(inspect.unwrap(_without_partial(function)), "__globals__", {})
    return [each.name for each in parameters if _is_context(each.annotation, names)]


def _is_context(annotation: Any, names: Mapping[str, Any]) -> bool:
    if isinstance(annotation, str):
        try:
            return _spells_context(ast.parse(annotation.strip(), mode="eval").body, names)
        except (SyntaxError, ValueError, RecursionError):
            return False
    if get_origin(annotation) in _UNIONS:
        return any(_is_context(each, names) for each in get_args(annotation))
    if get_origin(annotation) is Annotated:
        return _is_context(get_args(annotation)[0], names)
    return annotation is Context


def _spells_context(node: ast.expr, names: Mapping[str, Any]) -> bool:
    """Whether an annotation's text means our Context. It is parsed, not evaluated: its names may not resolve here."""
    match node:
        case ast.Constant(value=str() as quoted):
            return _is_context(quoted, names)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _spells_context(left, names) or _spells_context(right, names)
        case ast.Subscript(value=ast.Name(id=what) | ast.Attribute(attr=what), slice=inner) if what in _AROUND:
            inside = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return any(_spells_context(each, names) for each in (inside[:1] if what == "Annotated" else inside))
        case ast.Name() | ast.Attribute():
            return _names_context(ast.unparse(node), names)
    return False


def _names_context(dotted: str, names: Mapping[str, Any]) -> bool:
    """Whether a dotted name is our Context. Under TYPE_CHECKING it has no value, so its last part decides."""
    first, *rest = dotted.split(".")
    if first not in names:
        return [first, *rest][-1] == "Context"
    return reduce(lambda value, name: getattr(value, name, None), rest, names[first]) is Context


def _without_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a partial calls, because its name and docstring are the tool's."""
    while isinstance(function, partial):
        function = function.func
    return function


def is_seconds(value: Any) -> bool:
    """Return whether `value` is a number above zero; infinity means no limit."""
    return type(value) in (int, float) and 0 < value <= math.inf


def check_words(name: Any, description: Any) -> None:
    """Raise ToolDefinitionError if a name or a description is not a text."""
    for option, value in (("name", name), ("description", description)):
        if not isinstance(value, str) and (value is not None or option == "name"):
            raise ToolDefinitionError(f"{option}={value!r} is not valid", path=str(name), hint="give a text")


def _check_cache(tool_name: str, cache: Mapping[str, str], *, can_repeat: bool) -> None:
    """Raise ToolDefinitionError if the ttl is not a duration, or the tool's calls must not be skipped."""
    try:
        is_time = {*cache} == {"ttl"} and parse_duration(cache["ttl"]).total_seconds() > 0
    except CallerError:
        is_time = False
    if not is_time:
        hint = 'give a length of time, such as {"ttl": "1h"}'
        raise ToolDefinitionError(f"cache={cache!r} is not valid", path=tool_name, hint=hint)
    if not can_repeat:
        hint = "mark it idempotent, if a call that is not made changes nothing, or remove cache"
        raise ToolDefinitionError("it is not idempotent, so its results cannot be kept", path=tool_name, hint=hint)
