"""A tool in its ensemble.

Owns what is needed to describe, validate and call it. Knows nothing of threads, timeouts or results.
Law: arguments are validated in `__call__`, once, whoever calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from callboard.core import ToolDeclaration
from callboard.schema import compile_schema
from callboard.tools.context import Context
from callboard.tools.tool import Tool

if TYPE_CHECKING:
    from callboard.tools.ensemble import Ensemble

Invocable: TypeAlias = Callable[[Context, Mapping[str, Any]], Awaitable[Any]]


class Validates(Protocol):
    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]: ...


class Invoker:
    """A callable with its name, description and arguments schema (seed 000).

    `await invoker(context, arguments)` validates and calls. `timeout` in seconds, None leaves it to the
    ensemble. `blocking` says that the call occupies its thread until it is done.
    """

    def __init__(
        self,
        name: str,
        invocable: Invocable,
        arguments_schema: Mapping[str, Any],
        ensemble: Ensemble | None = None,
        description: str = "",
        *,
        validator: Validates | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
        approval: bool = False,
        blocking: bool = False,
        cli: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.invocable = invocable
        self.arguments_schema = arguments_schema
        self.description = description
        self.ensemble = ensemble
        self.timeout = timeout
        self.idempotent = idempotent
        self.approval = approval
        self.blocking = blocking
        self.cli = dict(cli or {})
        self._validator: Validates = validator or compile_schema(arguments_schema, path=name)

    @classmethod
    def of(cls, tool: Tool[..., Any]) -> Invoker:
        """The invoker of a Tool. Its schema is derived here."""
        function, wanted = tool.function, tool.context_parameter
        is_async = tool.is_async

        async def invocable(context: Context, arguments: Mapping[str, Any]) -> Any:
            given = {**arguments, wanted: context} if wanted else arguments
            result = function(**given)
            return await result if is_async else result

        return cls(
            tool.name,
            invocable,
            tool.schema,
            description=tool.description,
            validator=tool,
            timeout=tool.timeout,
            idempotent=tool.idempotent,
            approval=tool.approval,
            blocking=not is_async,
            cli=tool.cli,
        )

    async def __call__(self, context: Context, arguments: Mapping[str, Any]) -> Any:
        """What the tool returns. Raises ArgumentsInvalid before anything ran, and whatever the tool raises."""
        return await self.invocable(context, self._validator.validate(arguments))

    def __repr__(self) -> str:
        return f"<Invoker {self.name}>"

    def declare(self, name: str | None = None) -> ToolDeclaration:
        """What a model is told of it, under the name it has on the wire."""
        return ToolDeclaration(name or self.name, self.description, self.arguments_schema)
