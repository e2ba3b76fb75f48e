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
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)

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


class Tool(Generic[P, R]):
    """A function made callable by models. Made with `@tool`.

    `name` is by default the function's, `description` its docstring's; `schema` is the JSON Schema of its arguments.
    `timeout` is in seconds, `math.inf` is no limit, None leaves it to the ensemble. `idempotent` says that a call may be repeated
    after a failure of the network or a timeout; `approval` that a person is asked before each call; `cli`
    maps flags such as `-t` to parameters, for models that write calls as commands; `strict` that the provider is
    asked to hold calls to the schema, None leaves it to the provider. `subjects` says which parameters are a `path`
    or a `command`, for patterns of permissions such as `bash(git status*)`; a `further_path` is one that patterns
    may deny or ask about, and that needs no rule of its own where the call is allowed otherwise. `cache`, such as
    `{"ttl": "1h"}`, says for how long a result may answer equal calls of other runs too; only of what is idempotent.
    """

    repeatable: Callable[[Mapping[str, Any]], bool] | None = None
    """Says of arguments whether that call is idempotent, for a kind of tool of which not every call is."""
    calls: Mapping[str, str] = MappingProxyType({})
    """Names by which a model may call it wrongly, and what it is told to write instead."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
        approval: bool = False,
        cli: Mapping[str, str] | None = None,
        strict: bool | None = None,
        subjects: Mapping[str, Subject] | None = None,
        cache: Mapping[str, str] | None = None,
    ) -> None:
        if not callable(function):
            raise ToolDefinitionError(f"{function!r} is no function", hint="decorate a function with @tool")
        named = _without_partial(function)
        self.function = function
        self.name = name or str(getattr(named, "__name__", type(named).__name__))
        check_options(
            self.name,
            timeout=timeout,
            description=description,
            idempotent=idempotent,
            approval=approval,
            cli=cli,
            strict=strict,
            subjects=subjects,
            cache=cache,
        )
        check_cache(self.name, cache, can_repeat=idempotent or self.repeatable is not None)
        self.timeout = timeout
        self.idempotent = idempotent
        self.approval = approval
        self.cli = dict(cli or {})
        self.strict = strict
        self.subjects = dict(subjects or {})
        self.cache = None if cache is None else dict(cache)
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
    *,
    name: str | None = ...,
    description: str | None = ...,
    timeout: float | None = ...,
    idempotent: bool = ...,
    approval: bool = ...,
    cli: Mapping[str, str] | None = ...,
    strict: bool | None = ...,
    subjects: Mapping[str, Subject] | None = ...,
    cache: Mapping[str, str] | None = ...,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a function a Tool, as `@tool` or `@tool(timeout=5, idempotent=True)`.

    Every parameter needs an annotation; `*args` and `**kwargs` cannot be described to a model. A parameter
    annotated `Context` is given the run's context and is not in the schema. Raises ToolDefinitionError.
    """
    if function is None:
        return lambda decorated: Tool(decorated, **options)
    return Tool(function, **options)


def checked_subjects(
    subjects: Mapping[str, Subject] | None, names: Collection[str], path: str
) -> Mapping[str, Subject]:
    """The subjects. Raises ToolDefinitionError for one of no argument: a rule that looks at it would never match."""
    for name, subject in (subjects or {}).items():
        if name not in names:
            raise ToolDefinitionError(f"no argument {name!r}", path=f"{path}: subjects", hint=suggest(name, names))
        if subject not in get_args(Subject):
            raise ToolDefinitionError(
                f"no subject {subject!r}", path=f"{path}: subjects.{name}", hint=", ".join(get_args(Subject))
            )
    return dict(subjects or {})


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


def _is_cache(value: Any) -> bool:
    if not isinstance(value, Mapping) or {*value} != {"ttl"} or not isinstance(value["ttl"], str):
        return False
    try:
        return parse_duration(value["ttl"]).total_seconds() > 0
    except CallerError:
        return False


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(each, str) for pair in value.items() for each in pair)


_OPTIONS: Final[Mapping[str, tuple[Callable[[Any], bool], str, str]]] = {
    "timeout": (
        lambda value: value is None or is_seconds(value),
        "is no number of seconds",
        "seconds above zero, or None",
    ),
    "idempotent": (lambda value: isinstance(value, bool), "cannot be", "True or False"),
    "approval": (lambda value: isinstance(value, bool), "cannot be", "True or False"),
    "strict": (lambda value: value is None or isinstance(value, bool), "cannot be", "True, False or None"),
    "cli": (lambda value: value is None or _is_mapping(value), "cannot be", "a mapping of flags to parameters"),
    "subjects": (lambda value: value is None or _is_mapping(value), "cannot be", "a mapping of parameters to subjects"),
    "cache": (lambda value: value is None or _is_cache(value), "cannot be", 'a length of time, such as {"ttl": "1h"}'),
    "description": (lambda value: value is None or isinstance(value, str), "cannot be", "a text"),
}
"""Options of a tool, what each may be, and what is said of what it may not be."""


def check_options(name: Any, **options: Any) -> None:
    """Raises ToolDefinitionError for a name or an option of the wrong kind: it would act as another one, or fail late."""
    if not isinstance(name, str):
        raise ToolDefinitionError(f"name={name!r} cannot be", hint="give a text")
    for option, value in options.items():
        fits, what, hint = _OPTIONS.get(option, (lambda _: True, "", ""))
        if not fits(value):
            raise ToolDefinitionError(f"{option}={value!r} {what}", path=name, hint=f"give {hint}")


def check_cache(name: str, cache: Mapping[str, str] | None, *, can_repeat: bool) -> None:
    """Raises ToolDefinitionError where results are to be kept of what is not idempotent: a call would not be made."""
    if cache is not None and not can_repeat:
        hint = "mark it idempotent, if a call that is not made changes nothing, or remove cache"
        raise ToolDefinitionError("it is not idempotent, so its results cannot be kept", path=name, hint=hint)
