"""What a server asks of us.

Owns the way from its questions to the user and to the run's model, and back. Knows nothing of who answers.
Law: a server gets an answer, whatever becomes of the question; without somebody to answer it is told so beforehand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from mcp_types import CreateMessageRequestParams, CreateMessageResult

Action: TypeAlias = Literal["accept", "decline", "cancel"]
Elicit: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[tuple[Action, Mapping[str, Any] | None]]]
"""Asks the user: what the server says, and the JSON Schema of the form to fill in. With a schema of nothing there is
no form: the user is to open the address at the end of the text. What is left out of the form gets its default.
"""
Sample: TypeAlias = "Callable[[CreateMessageRequestParams], Awaitable[CreateMessageResult]]"
"""Asks the run's model."""
Held: TypeAlias = Callable[[], AbstractContextManager[None]]

_INTERNAL_ERROR: Final = -32603


def elicitation_of(elicit: Elicit, held: Held) -> Any:
    """The SDK's callback; the calls of the server are `held` meanwhile."""

    async def callback(_: Any, params: Any) -> Any:
        from mcp_types import ElicitResult, ErrorData  # noqa: PLC0415  # the SDK's, imported with it

        schema: Mapping[str, Any] = getattr(params, "requested_schema", None) or {}
        text = params.message if schema else f"{params.message}\n{params.url}"
        try:
            with held():
                action, content = await elicit(text, schema)
        except Exception as error:  # noqa: BLE001  # whoever asks the user may fail in any way
            return ErrorData(code=_INTERNAL_ERROR, message=f"the user could not be asked: {error}")
        filled = {**_defaults(schema), **(content or {})} if action == "accept" and schema else None
        return ElicitResult(action=action, content=filled)

    return callback


def sampling_of(sample: Sample, held: Held) -> Any:
    """The SDK's callback; the calls of the server are `held` meanwhile."""

    async def callback(_: Any, params: Any) -> Any:
        from mcp_types import ErrorData  # noqa: PLC0415

        try:
            with held():
                return await sample(params)
        except Exception as error:  # noqa: BLE001  # whatever becomes of the model
            return ErrorData(code=_INTERNAL_ERROR, message=f"the model could not be asked: {error}")

    return callback


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields = schema.get("properties")
    given = fields.items() if isinstance(fields, Mapping) else ()
    return {name: field["default"] for name, field in given if isinstance(field, Mapping) and "default" in field}
