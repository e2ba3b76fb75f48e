"""A tool in its ensemble: its description, validation and call.

Law: `__call__` validates the arguments, once, for every caller.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Unpack, cast

from callboard.core import ToolDeclaration
from callboard.errors import ToolDefinitionError
from callboard.schema import ArgumentsInvalid, compile_schema
from callboard.tools.context import Context
from callboard.tools.tool import HasOptions, Tool, ToolOptions, check_subjects, check_words, is_async

if TYPE_CHECKING:
    from callboard.tools.ensemble import Ensemble

Invocable: TypeAlias = Callable[[Context, Mapping[str, Any]], Awaitable[Any]]
"""The function that an invoker calls. A plain function also works: it runs in a thread."""

Key: TypeAlias = Callable[[Mapping[str, Any]], bytes | None]


class ArgumentsValidator(Protocol):
    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]: ...


class Invoker(HasOptions):
    """A callable with its name, description and arguments schema.

    `await invoker(context, arguments)` validates the arguments and calls the function.

    Args:
        name: The name that models call.
        invocable: The function of a context and arguments.
        arguments_schema: The JSON Schema of the arguments.
        ensemble: The ensemble that the invoker belongs to.
        description: Description of the tool for models.
        validator: Validates instead of the schema.
        blocking: True if a call occupies its thread until it is done.
        repeatable: Says whether a call with these arguments is idempotent, if that depends on the arguments.
        calls: Wrong names that models use for the tool, with a hint for each.
        key: Returns a key of the arguments. Calls of a run with the same key run one after another. A call whose key
            is None never waits.
        implementation: The underlying function. Cached results belong to it.
        options: The `ToolOptions`.

    `hands_over` is true if a call hands the conversation to another agent. `dropped` lists the parts of an external
    schema that cannot be enforced.
    """

    hands_over = False

    def __init__(
        self,
        name: str,
        invocable: Invocable,
        arguments_schema: Mapping[str, Any],
        ensemble: Ensemble | None = None,
        description: str = "",
        *,
        validator: ArgumentsValidator | None = None,
        blocking: bool = False,
        repeatable: Callable[[Mapping[str, Any]], bool] | None = None,
        calls: Mapping[str, str] | None = None,
        key: Key | None = None,
        implementation: Callable[..., Any] | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        _check(name, invocable, arguments_schema)
        check_words(name, description)
        self._name = name
        self.invocable = invocable
        # This comes first because it limits the schema, including its depth.
        self._validator: ArgumentsValidator = validator or compile_schema(arguments_schema, path=name)
        # A read-only copy: the declaration stays the schema that the validator was compiled from.
        self._schema: dict[str, Any] = _copy(arguments_schema)
        self.description = description
        self.ensemble = ensemble
        self.blocking = blocking or not is_async(invocable)
        self.repeatable = repeatable
        self.calls = dict(calls or {})
        self.key = key
        self.implementation = implementation or invocable
        self.dropped: tuple[str, ...] = getattr(self._validator, "dropped", ())
        self.set_options(name, options)
        check_subjects(self.subjects, arguments_schema.get("properties", {}), name)

    @property
    def arguments_schema(self) -> Mapping[str, Any]:
        """A copy of the JSON Schema of the arguments. The validator uses the original."""
        return MappingProxyType(_copy(self._schema))

    @property
    def name(self) -> str:
        """The tool's name. `replace` returns a copy with another name."""
        return self._name

    @property
    def output_schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of the tool's results, if they are objects; otherwise None."""
        schema: Mapping[str, Any] | None = getattr(self._validator, "output_schema", None)
        return schema

    @classmethod
    def of(cls, tool: Tool[..., Any]) -> Invoker:
        """Return the invoker of the Tool `tool`. This derives the schema."""
        return cls(
            tool.name,
            invocable_of(tool.function, tool.context_parameter),
            tool.schema,
            description=tool.description,
            validator=tool,
            blocking=not tool.is_async,
            repeatable=tool.repeatable,
            calls=tool.calls,
            implementation=tool.function,
            **tool.options,
        )

    async def __call__(self, context: Context, arguments: Mapping[str, Any]) -> Any:
        """Return the tool's value. Raises ArgumentsInvalid before anything runs, and the tool's own errors."""
        value = await self.call(context, arguments)
        return await value if inspect.isawaitable(value) else value

    async def call(self, context: Context, arguments: Mapping[str, Any], *, validated: bool = True) -> Any:
        """Call the function. If a plain function returns an awaitable, the caller has to await it.

        A plain function returns an awaitable if it wraps an async function, as ordinary decorators do. It runs in a
        thread, which has no event loop to await it in.

        Args:
            context: The tool's view of its run.
            arguments: The arguments of the call.
            validated: False passes the arguments on without validation and coercion (mode parsed).

        Returns:
            The function's value, which may be awaitable.

        Raises:
            ArgumentsInvalid: The arguments do not fit; nothing ran.
        """
        resolved = self.resolve_flags(arguments)
        if context.invoker is None:
            context = dataclasses.replace(context, invoker=self)
        value = self.invocable(context, self._validator.validate(resolved) if validated else resolved)
        # A plain function of (context, arguments) runs in a thread and returns its value directly.
        return await value if is_async(self.invocable) else value

    def resolve_flags(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the `arguments`, with each flag of `cli` replaced by its argument.

        Raises ArgumentsInvalid if both the flag and its argument are present.
        """
        if not self.cli or not isinstance(arguments, Mapping):
            return arguments
        properties = self._schema.get("properties", {})
        flags = [key for key in arguments if key in self.cli and key not in properties]
        if not flags:
            return arguments
        taken = {key for key in arguments if key not in flags}
        twice = []
        for flag in flags:
            name = self.cli[flag]
            if name in taken:
                twice.append(((flag,), f"Stands for {name!r}, which is given already"))
            taken.add(name)
        if twice:
            raise ArgumentsInvalid(twice)
        return {self.cli[key] if key in flags else key: value for key, value in arguments.items()}

    def coerce(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the `arguments` with defaults and coercions, or unchanged if they do not fit."""
        try:
            arguments = self.resolve_flags(arguments)
            return self._validator.validate(arguments)
        except ArgumentsInvalid:
            return arguments

    def find_mistake(self, arguments: Mapping[str, Any]) -> str:
        """Return what is wrong with the `arguments`, in words for the model; empty if they fit."""
        try:
            self._validator.validate(self.resolve_flags(arguments))
        except ArgumentsInvalid as invalid:
            return str(invalid)
        return ""

    def is_idempotent(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call with these `arguments` may be repeated without any effect that others notice."""
        return self.idempotent if self.repeatable is None else self.repeatable(self.coerce(arguments))

    def __repr__(self) -> str:
        return f"<Invoker {self.name}>"

    def replace(self, **changes: Any) -> Invoker:
        """Return a copy with `changes` of attributes, except the schema. The copy belongs to no ensemble yet."""
        copied = copy(self)
        options = {name: changes.pop(name) for name in [*changes] if name in ToolOptions.__annotations__}
        for name, value in {"ensemble": None, **changes}.items():
            attribute = "_name" if name == "name" else name
            if attribute not in vars(self) or name in ("_name", "_schema", "dropped", "_validator"):
                raise TypeError(f"{name!r} of an invoker cannot be replaced")
            setattr(copied, attribute, value)
        check_words(copied.name, copied.description)
        copied.set_options(copied.name, cast("ToolOptions", options))
        return copied

    def declare(self, name: str | None = None) -> ToolDeclaration:
        """Return the declaration for a model, under its `name` on the wire; None means the tool's own."""
        return ToolDeclaration(name or self.name, self.description, _copy(self._schema), self.cli, strict=self.strict)


def _copy(schema: Any) -> Any:
    """Copy the schema into plain dicts and lists. copy.deepcopy refuses read-only mappings."""
    if isinstance(schema, Mapping):
        return {key: _copy(value) for key, value in schema.items()}
    return [_copy(each) for each in schema] if isinstance(schema, (list, tuple)) else schema


def _check(name: Any, invocable: Any, schema: Any) -> None:
    """Raise ToolDefinitionError for arguments that an untyped caller may have mixed up."""
    if not isinstance(schema, Mapping):
        hint = 'give a JSON Schema such as {"type": "object"}'
        raise ToolDefinitionError(f"{schema!r} is not a schema", path=str(name), hint=hint)
    if not callable(invocable) or inspect.isgeneratorfunction(invocable) or inspect.isasyncgenfunction(invocable):
        hint = "give an async function of (context, arguments)"
        raise ToolDefinitionError(f"{invocable!r} cannot be awaited", path=str(name), hint=hint)


def invocable_of(function: Callable[..., Any], context_parameter: str | None) -> Invocable:
    """Return an invocable that passes the arguments as keywords, and the context if the function takes it."""
    awaited = is_async(function)

    async def invocable(context: Context, arguments: Mapping[str, Any]) -> Any:
        resolved = {**arguments, context_parameter: context} if context_parameter else arguments
        result = function(**resolved)
        return await result if awaited else result

    return invocable
