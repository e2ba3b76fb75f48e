"""Four tools by which a model lists and reads the resources and prompts of a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from callboard.core import Content, TextualContent
from callboard.execution.result_store import KeptResults
from callboard.mcp.results import prompt_content, resource_content, shorten_texts
from callboard.mcp.sanitize import clean_text
from callboard.tools import Context, Invoker

if TYPE_CHECKING:
    from callboard.mcp.client import McpClient

_NONE: Final[Mapping[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}
_READ: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"uri": {"type": "string"}},
    "required": ["uri"],
    "additionalProperties": False,
}
_LISTS: Final = "Lists what read_resource can read; a uri_template (RFC 6570) has to be filled in first."
_GET: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "arguments": {"type": "object", "additionalProperties": {"type": "string"}, "default": {}},
    },
    "required": ["name"],
    "additionalProperties": False,
}


def resource_invokers(get_client: Callable[[], McpClient], store: KeptResults, limit: int) -> tuple[Invoker, ...]:
    """`list_resources` and `read_resource`; `limit` bounds a result in bytes."""

    async def list_resources(_: Context, __: Mapping[str, Any]) -> Any:
        rows = [
            _row(uri=str(each.uri), name=each.name, description=each.description, mime_type=each.mime_type)
            for each in await get_client().resources()
        ] + [
            _row(uri_template=each.uri_template, name=each.name, description=each.description, mime_type=each.mime_type)
            for each in await get_client().resource_templates()
        ]
        return _json_content(rows, store, limit)

    async def read_resource(_: Context, arguments: Mapping[str, Any]) -> Any:
        return resource_content(await get_client().read_resource(arguments["uri"]), store, limit)

    return (
        Invoker("list_resources", list_resources, _NONE, description=_LISTS),
        Invoker("read_resource", read_resource, _READ, description="Reads one of the server's resources."),
    )


def prompt_invokers(get_client: Callable[[], McpClient], store: KeptResults, limit: int) -> tuple[Invoker, ...]:
    """`list_prompts` and `get_prompt`."""

    async def list_prompts(_: Context, __: Mapping[str, Any]) -> Any:
        rows = [
            _row(
                name=each.name,
                description=each.description,
                arguments=[
                    _row(name=argument.name, description=argument.description, required=argument.required)
                    for argument in each.arguments or ()
                ],
            )
            for each in await get_client().prompts()
        ]
        return _json_content(rows, store, limit)

    async def get_prompt(_: Context, arguments: Mapping[str, Any]) -> Any:
        result = await get_client().get_prompt(arguments["name"], arguments["arguments"])
        return prompt_content(result, store, limit)

    return (
        Invoker("list_prompts", list_prompts, _NONE, description="Lists the server's prompts and their arguments."),
        Invoker("get_prompt", get_prompt, _GET, description="One of the server's prompts, with arguments filled in."),
    )


def _json_content(rows: list[dict[str, Any]], store: KeptResults, limit: int) -> tuple[Content, ...]:
    text = json.dumps(rows, ensure_ascii=False)
    return shorten_texts([TextualContent(text, mime_type="application/json")], store, limit)


def _row(**facts: Any) -> dict[str, Any]:
    return {key: clean_text(fact, 1024) if isinstance(fact, str) else fact for key, fact in facts.items() if fact}
