"""A Python function that models may call: `@tool` and what it keeps of the function.

Law: the tool is called like the function; its schema is derived when it is first asked for.
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
"""What an argument is that patterns of permissions look at."""

_UNIONS: Final = (Union, UnionType)
_AROUND: Final = ("Annotated", "Optional", "Union")
"""What may stand around Context in an annotation that is a string."""

P = ParamSpec("P")
R = TypeVar("R")


class ToolOptions(TypedDict, total=False):
    """Options of a tool: keywords of `@tool`, `Tool` and `Invoker`, and keys of a descriptor."""

    timeout: Annotated[float, Meta(gt=0)] | None
    """Seconds that a call may take; `math.inf` is no limit, None leaves it to the ensemble."""
    idempotent: bool
    """True if a call may be repeated after a failure of the network or a timeout."""
    approval: bool
    """True if a person is asked before each call."""
    cli: Mapping[str, str] | None
    """Flags such as `-t`, and the parameters that they stand for, for models that write calls as commands."""
    strict: bool | None
    """True if the provider is asked to hold calls to the schema; None leaves it to the provider."""
    subjects: Mapping[str, Subject] | None
    """The parameters that are a `path` or a `command`, for patterns of permissions such as `bash(git status*)`.

    Patterns may deny or ask about a `further_path`, but it needs no rule of its own if the call is allowed otherwise.
    """
    cache: Mapping[str, str] | None
    """How long a result may answer equal calls of other runs too, such as `{"ttl": "1h"}`; the tool is idempotent."""


class HasOptions:
    """The options of a tool as attributes, with their defaults."""

    timeout: float | None = None
    idempotent: bool = False
    approval: bool = False
    cli: Mapping[str, str] = MappingProxyType({})
    strict: bool | None = None
    subjects: Mapping[str, Subject] = MappingProxyType({})
    cache: Mapping[str, str] | None = None
    repeatable: Callable[[Mapping[str, Any]], bool] | None = None
    """Says of arguments whether that call is idempotent, for a tool of which not every call is."""
    calls: Mapping[str, str] = MappingProxyType({})
    """Names by which a model may call it wrongly, and what it is told to write instead."""

    @property
    def options(self) -> ToolOptions:
        return cast("ToolOptions", {name: getattr(self, name) for name in ToolOptions.__annotations__})

    def set_options(self, tool_name: str, options: ToolOptions) -> None:
        """Set options; None is the default. Raises ToolDefinitionError for a wrong value, TypeError for a wrong name."""
        for name, value in options.items():
            if name not in ToolOptions.__annotations__:
                raise TypeError(f"{type(self).__name__} has no option {name!r}")
            try:
                read = msgspec.convert({name: value}, ToolOptions)
            except msgspec.ValidationError as error:
                hint = str(error).partition(" - at")[0]
                hint += f"; subjects are {', '.join(get_args(Subject))}" if name == "subjects" else ""
                raise ToolDefinitionError(f"{name}={value!r} cannot be", path=tool_name, hint=hint) from None
            setattr(self, name, getattr(HasOptions, name) if value is None else read[name])  # type: ignore[literal-required]
        if self.cache is not None:
            can_repeat = self.idempotent or self.repeatable is not None
            _check_cache(tool_name, self.cache, can_repeat=can_repeat)


class Tool(HasOptions, Generic[P, R]):
    """A function made callable by models. Made with `@tool`.

    `name` is by default the function's, `description` its docstring's; `schema` is the JSON Schema of its arguments.
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
            raise ToolDefinitionError(f"{function!r} is no function", hint="decorate a function with @tool")
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
        """Whether a call is to be awaited."""
        return is_async(self.function)

    @cached_property
    def _derived(self) -> Derived:
        return derive(self.function, skip=self._skip)

    @property
    def description(self) -> str:
        """What models are told that it does."""
        return self._derived.description if self._given_description is None else self._given_description

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of its arguments."""
        return self._derived.schema

    @cached_property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of the object that it returns, where its annotation says that it is one."""
        return derive_output(self.function)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments, coerced and with their Python types. Raises ArgumentsInvalid."""
        return self._derived.validate(arguments)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *, name: str | None = ..., description: str | None = ..., **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a function a Tool, as `@tool` or `@tool(timeout=5, idempotent=True)`.

    Every parameter needs an annotation; `*args` and `**kwargs` cannot be described to a model. A parameter
    annotated `Context` is given the run's context and is not in the schema. Raises ToolDefinitionError.

    The options are `name` (by default the function's), `description` (its docstring's), and those of `ToolOptions`.
    """
    if function is None:
        return lambda decorated: Tool(decorated, **options)
    return Tool(function, **options)


def check_subjects(subjects: Mapping[str, Subject], names: Collection[str], path: str) -> None:
    """Raise ToolDefinitionError for a subject of no argument: a rule that looks at it would never match."""
    for name in subjects:
        if name not in names:
            raise ToolDefinitionError(f"no argument {name!r}", path=f"{path}: subjects", hint=suggest(name, names))


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call is to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  # an object's own async __call__


def context_parameters(function: Callable[..., Any]) -> list[str]:
    """The parameters that are annotated `Context`, `Context | None` or `Annotated[Context, ...]`.

    Annotations may be strings. An empty list is given for what has no signature.
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
    """Whether an annotation's text is our Context. It is read, not evaluated: its names may not resolve here."""
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
    """Whether a dotted name is our Context; where it stands for nothing, as behind TYPE_CHECKING, its end decides."""
    first, *rest = dotted.split(".")
    if first not in names:
        return [first, *rest][-1] == "Context"
    return reduce(lambda value, name: getattr(value, name, None), rest, names[first]) is Context


def _without_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a partial calls: its name and its docstring are the tool's, not those of functools."""
    while isinstance(function, partial):
        function = function.func
    return function


def is_seconds(value: Any) -> bool:
    """Whether it is a number above zero; infinity is no limit."""
    return type(value) in (int, float) and 0 < value <= math.inf


def check_words(name: Any, description: Any) -> None:
    """Raise ToolDefinitionError if a name or a description is no text."""
    for option, value in (("name", name), ("description", description)):
        if not isinstance(value, str) and (value is not None or option == "name"):
            raise ToolDefinitionError(f"{option}={value!r} cannot be", path=str(name), hint="give a text")


def _check_cache(tool_name: str, cache: Mapping[str, str], *, can_repeat: bool) -> None:
    """Raise ToolDefinitionError for what is no length of time, and for a tool of which a call must not be left out."""
    try:
        is_time = {*cache} == {"ttl"} and parse_duration(cache["ttl"]).total_seconds() > 0
    except CallerError:
        is_time = False
    if not is_time:
        hint = 'give a length of time, such as {"ttl": "1h"}'
        raise ToolDefinitionError(f"cache={cache!r} cannot be", path=tool_name, hint=hint)
    if not can_repeat:
        hint = "mark it idempotent, if a call that is not made changes nothing, or remove cache"
        raise ToolDefinitionError("it is not idempotent, so its results cannot be kept", path=tool_name, hint=hint)
