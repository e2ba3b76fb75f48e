"""Join a descriptor and a function to an invoker, and check that they fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from callboard.errors import DescriptorError, ToolDefinitionError
from callboard.schema import ArgumentsInvalid, compile_schema
from callboard.schema.docstring import read_docstring
from callboard.schema.errors import EXTRA
from callboard.text.suggest import suggest
from callboard.tools.descriptors import InvokerDescriptor
from callboard.tools.invoker import ArgumentsValidator, Invocable, Invoker, invocable_of
from callboard.tools.tool import Tool, check_subjects, context_parameters, is_async


def make_invoker(descriptor: InvokerDescriptor, function: Callable[..., Any]) -> Invoker:
    """The invoker of a Tool, a plain function, or `async def f(context, arguments)`.

    With `arguments` that schema validates, and the function is called with what it lets through; else the
    signature is derived. Raises DescriptorError where function and descriptor do not fit each other.
    """
    tool = function if isinstance(function, Tool) else None
    takes_all = tool is None and _takes_context_and_arguments(function)
    if descriptor.arguments is not None:
        made = _of_schema(descriptor, descriptor.arguments, function, takes_all=takes_all)
    elif takes_all:
        raise DescriptorError(
            f"{descriptor.name} takes (context, arguments), and nothing says which arguments",
            path=descriptor.path,
            hint="describe them in [arguments]",
        )
    else:
        made = _of_signature(descriptor, tool or function)
    try:
        properties = made.arguments_schema.get("properties", {})
        check_subjects(descriptor.options.get("subjects") or {}, properties, descriptor.name)
        return made.replace(
            name=descriptor.name,
            description=descriptor.description or made.description,
            **descriptor.options,
        )
    except ToolDefinitionError as error:
        raise DescriptorError(error.message, path=f"{descriptor.path}: {error.path}", hint=error.hint) from None


def _takes_context_and_arguments(function: Callable[..., Any]) -> bool:
    try:
        return [*inspect.signature(function).parameters] == ["context", "arguments"]
    except (TypeError, ValueError):
        return False


def _of_signature(descriptor: InvokerDescriptor, function: Callable[..., Any]) -> Invoker:
    try:
        return Invoker.of(function if isinstance(function, Tool) else Tool(function))
    except ToolDefinitionError as error:
        raise DescriptorError(error.message, path=f"{descriptor.path}: {error.path}", hint=error.hint) from error


def _of_schema(
    descriptor: InvokerDescriptor, schema: dict[str, Any], optional: Callable[..., Any], *, takes_all: bool
) -> Invoker:
    tool = optional if isinstance(optional, Tool) else None
    function = tool.function if tool else optional
    validator: ArgumentsValidator = compile_schema(schema, path=descriptor.path)
    if takes_all:
        invocable = _awaitable(function)
    else:
        try:
            inspect.signature(function)
        except (TypeError, ValueError):
            raise DescriptorError("the function has no signature that Python can tell", path=descriptor.path) from None
        context_parameter = next(iter(context_parameters(function)), None)
        invocable = invocable_of(function, context_parameter)
        validator = _fitting(validator, schema, function, context_parameter, descriptor.path)
    made = Invoker(
        descriptor.name,
        invocable,
        schema,
        description=descriptor.description or read_docstring(function.__doc__).description,
        validator=validator,
        blocking=not is_async(function),
        implementation=function,
    )
    return made.replace(**tool.options) if tool else made


def _awaitable(function: Callable[..., Any]) -> Invocable:
    if is_async(function):
        return function

    async def invocable(context: Any, arguments: Mapping[str, Any]) -> Any:
        return function(context, arguments)

    return invocable


_ELSEWHERE = ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependentRequired")
"""Keywords by which a schema may require, or fill in, more than its root says."""


def _fitting(
    validator: ArgumentsValidator,
    schema: dict[str, Any],
    function: Callable[..., Any],
    context_parameter: str | None,
    path: str,
) -> ArgumentsValidator:
    """The schema's validator, for a function that is called by keyword. Raises DescriptorError if they don't fit."""
    parameters = {
        name: one for name, one in inspect.signature(function).parameters.items() if name != context_parameter
    }
    kinds = {one.kind for one in parameters.values()}
    if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.POSITIONAL_ONLY in kinds:
        raise DescriptorError("the function cannot be called by keyword", path=path, hint="remove `*args` and `/`")
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds
    names = {name: one for name, one in parameters.items() if one.kind is not inspect.Parameter.VAR_KEYWORD}
    properties = schema.get("properties", {})
    for name in properties:
        if name not in names and not takes_any:
            hint = suggest(name, names) if names else "it takes none"
            raise DescriptorError(f"the function takes no argument {name!r}", path=path, hint=hint)
    optional = {*schema.get("required", ()), *(name for name, one in properties.items() if _has_default(one))}
    for name, one in names.items():
        if one.default is one.empty and name not in optional and schema.keys().isdisjoint(_ELSEWHERE):
            raise DescriptorError(
                f"the function wants {name!r}, which [arguments] may leave out",
                path=path,
                hint="put it into `required`, or give it a default",
            )
    return validator if takes_any else _Keywords(validator, frozenset(names))


def _has_default(schema: Any) -> bool:
    return isinstance(schema, Mapping) and "default" in schema


class _Keywords:
    """A validator for a function that takes these arguments and no others, whatever its schema allows."""

    def __init__(self, validator: ArgumentsValidator, names: frozenset[str]) -> None:
        self.dropped = getattr(validator, "dropped", ())
        self._validator = validator
        self._names = names

    def validate(self, arguments: Mapping[str, Any], /) -> dict[str, Any]:
        values = self._validator.validate(arguments)
        extra = [((name,), EXTRA) for name in values if name not in self._names]
        if extra:
            raise ArgumentsInvalid(extra)
        return values
