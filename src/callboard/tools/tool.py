"""A Python function that models may call.

Owns `@tool` and what it keeps of the function. Knows nothing of ensembles or of how it is run.
Law: the tool is called like the function; its schema is derived when it is first asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, reduce, update_wrapper
from types import MappingProxyType
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, get_args, overload

from callboard.errors import ToolDefinitionError
from callboard.schema import Derived, check_signature, derive
from callboard.text.near import near
from callboard.tools.context import Context

Subject: TypeAlias = Literal["path", "command"]
"""What an argument is that patterns of permissions look at."""

P = ParamSpec("P")
R = TypeVar("R")


class Tool(Generic[P, R]):
    """A function made callable by models (seed 001). Made with `@tool`.

    `name` is the function's, `description` its docstring's, `schema` the JSON Schema of its arguments.
    `timeout` is in seconds, None leaves it to the ensemble. `idempotent` says that a call may be repeated
    after a failure of the network or a timeout; `approval` that a person is asked before each call; `cli`
    maps flags such as `-t` to parameters, for models that write calls as commands; `strict` that the provider is
    asked to hold calls to the schema, None leaves it to the provider. `subjects` says which parameters are a `path`
    or a `command`, for patterns of permissions such as `bash(git status*)`.
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
        timeout: float | None = None,
        idempotent: bool = False,
        approval: bool = False,
        cli: Mapping[str, str] | None = None,
        strict: bool | None = None,
        subjects: Mapping[str, Subject] | None = None,
    ) -> None:
        if not callable(function):
            raise ToolDefinitionError(f"{function!r} is no function", hint="decorate a function with @tool")
        self.function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self.timeout = timeout
        self.idempotent = idempotent
        self.approval = approval
        self.cli = dict(cli or {})
        self.strict = strict
        self.subjects = dict(subjects or {})
        self.context_parameter = context_parameter(function)
        self._skip = frozenset({self.context_parameter} if self.context_parameter else ())
        check_signature(function, skip=self._skip)
        update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    @property
    def is_async(self) -> bool:
        return is_async(self.function)

    @cached_property
    def _derived(self) -> Derived:
        return derive(self.function, skip=self._skip)

    @property
    def description(self) -> str:
        return self._derived.description

    @property
    def schema(self) -> Mapping[str, Any]:
        return self._derived.schema

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments, coerced and with their Python types. Raises ArgumentsInvalid."""
        return self._derived.validate(arguments)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = ...,
    timeout: float | None = ...,
    idempotent: bool = ...,
    approval: bool = ...,
    cli: Mapping[str, str] | None = ...,
    strict: bool | None = ...,
    subjects: Mapping[str, Subject] | None = ...,
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
            raise ToolDefinitionError(f"no argument {name!r}", path=f"{path}: subjects", hint=near(name, names))
        if subject not in get_args(Subject):
            raise ToolDefinitionError(f"no subject {subject!r}", path=f"{path}: subjects.{name}", hint="path, command")
    return dict(subjects or {})


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a call is to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004  # an object's own async __call__


def context_parameter(function: Callable[..., Any]) -> str | None:
    """The parameter that is annotated `Context`, also where annotations are strings."""
    names = getattr(inspect.unwrap(function), "__globals__", {})
    for parameter in inspect.signature(function).parameters.values():
        annotation = parameter.annotation
        if annotation is Context or (isinstance(annotation, str) and _names_context(annotation, names)):
            return parameter.name
    return None


def _names_context(annotation: str, names: Mapping[str, Any]) -> bool:
    """Whether a dotted name is our Context; where it stands for nothing, as behind TYPE_CHECKING, its end decides."""
    # Quoted besides `from __future__ import annotations`, it keeps its quotes.
    first, *rest = annotation.strip("'\"").split(".")
    if first not in names:
        return [first, *rest][-1] == "Context"
    return reduce(lambda value, name: getattr(value, name, None), rest, names[first]) is Context
