"""A server's questions to the user (elicitation) and to the run's model (sampling), as callbacks of the SDK.

Law: a server gets an answer whatever happens to its question. Where nobody can answer, the callback is not given to the
SDK, so that the server learns it in the handshake.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from mcp_types import CreateMessageRequestParams, CreateMessageResult

ElicitAction: TypeAlias = Literal["accept", "decline", "cancel"]
Elicit: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[tuple[ElicitAction, Mapping[str, Any] | None]]]
"""Asks the user: called with the server's text and the JSON Schema of the form to fill in.

With an empty schema there is no form: the user is to open the URL at the end of the text. Fields that the user leaves out
get their defaults.
"""
Sample: TypeAlias = "Callable[[CreateMessageRequestParams], Awaitable[CreateMessageResult]]"
"""Asks the run's model."""
PauseDeadlines: TypeAlias = Callable[[], AbstractContextManager[None]]

_INTERNAL_ERROR: Final = -32603


def elicitation_callback(elicit: Elicit, pause_deadlines: PauseDeadlines) -> Any:
    """The SDK's callback; the calls to the server do not time out meanwhile."""

    async def callback(_: Any, params: Any) -> Any:
        from mcp_types import ElicitResult, ErrorData  # noqa: PLC0415  # the SDK's, imported with it

        schema: Mapping[str, Any] = getattr(params, "requested_schema", None) or {}
        text = params.message if schema else f"{params.message}\n{params.url}"
        try:
            with pause_deadlines():
                action, content = await elicit(text, schema)
        except Exception as error:  # noqa: BLE001  # the callback may fail in any way
            return ErrorData(code=_INTERNAL_ERROR, message=f"the user could not be asked: {error}")
        filled = {**_defaults(schema), **(content or {})} if action == "accept" and schema else None
        return ElicitResult(action=action, content=filled)

    return callback


def sampling_callback(sample: Sample, pause_deadlines: PauseDeadlines) -> Any:
    """The SDK's callback; the calls to the server do not time out meanwhile."""

    async def callback(_: Any, params: Any) -> Any:
        from mcp_types import ErrorData  # noqa: PLC0415

        try:
            with pause_deadlines():
                return await sample(params)
        except Exception as error:  # noqa: BLE001  # whatever becomes of the model
            return ErrorData(code=_INTERNAL_ERROR, message=f"the model could not be asked: {error}")

    return callback


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields = schema.get("properties")
    items = fields.items() if isinstance(fields, Mapping) else ()
    return {name: field["default"] for name, field in items if isinstance(field, Mapping) and "default" in field}
