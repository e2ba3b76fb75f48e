"""Convert a server's answer into the content of a result.

Laws: structured content that repeats the text is omitted. A text that is too long is shortened, and the whole text is
stored, so that the model can read on.

Four tools let a model list and read the resources and prompts of a server.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from callboard.core import Content, FileContent, PictureContent, TextualContent
from callboard.errors import ToolExecutionFailure
from callboard.execution.result_content import MAX_BYTES, MAX_TEXT
from callboard.execution.result_store import KeptResults
from callboard.mcp.sanitize import clean_text
from callboard.tools import Context, Invoker

if TYPE_CHECKING:
    from mcp_types import CallToolResult, GetPromptResult, ReadResourceResult

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
    """Return `list_resources` and `read_resource`. `limit` is the maximum size of a result in bytes."""

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


_LABEL: Final = 512


class MCPExecutionFailure(ToolExecutionFailure):
    """The server reports that a call failed."""


def result_content(result: CallToolResult, store: KeptResults, limit: int) -> tuple[Content, ...]:
    """Return the content of an answer, with at most `limit` bytes of text. Raises MCPExecutionFailure for an error."""
    parts = [part for block in result.content for part in _contents(block)]
    texts = [part.text for part in parts if isinstance(part, TextualContent)]
    structured = result.structured_content
    if structured is not None and not _repeats(texts, structured):
        parts.append(TextualContent(json.dumps(structured, ensure_ascii=False), mime_type="application/json"))
    if result.is_error:
        texts_shown = shorten_texts([part for part in parts if isinstance(part, TextualContent)], store, limit)
        raise MCPExecutionFailure(
            "\n".join([each.text for each in texts_shown if isinstance(each, TextualContent)]) or "failed"
        )
    return shorten_texts(parts, store, limit)


def resource_content(result: ReadResourceResult, store: KeptResults, limit: int) -> tuple[Content, ...]:
    return shorten_texts([_resource(each) for each in result.contents], store, limit)


def prompt_content(result: GetPromptResult, store: KeptResults, limit: int) -> tuple[Content, ...]:
    """Return the messages of a prompt, each after a line with its role."""
    parts: list[Content] = []
    for message in result.messages:
        parts += [TextualContent(f"[{message.role}]"), *_contents(message.content)]
    return shorten_texts(parts, store, limit)


def shorten_texts(parts: Iterable[Content], store: KeptResults, limit: int) -> tuple[Content, ...]:
    """Return the parts. If their texts exceed `limit` bytes, one text with their beginning and end replaces them."""
    whole = tuple(parts)
    texts = [part.text for part in whole if isinstance(part, TextualContent)]
    most = min(limit, MAX_TEXT)
    if (
        sum(len(text) for text in texts) <= most // 4
        or sum(len(text.encode("utf-8", "replace")) for text in texts) <= most
    ):
        return whole or (TextualContent(""),)
    others = tuple(part for part in whole if not isinstance(part, TextualContent))
    return (TextualContent(store.truncate_middle("\n".join(texts), most)), *others)


def _contents(block: Any) -> Iterator[Content]:
    """Return a block's content, or the JSON of an unknown block."""
    match block.type:
        case "text":
            yield TextualContent(block.text)
        case "image":
            yield _binary(block.data, block.mime_type or "image/png")
        case "audio":
            yield _binary(block.data, block.mime_type or "audio/wav")
        case "resource_link":
            yield TextualContent(_link(block))
        case "resource":
            yield _resource(block.resource)
        case _:
            yield TextualContent(block.model_dump_json(by_alias=True, exclude_none=True))


def _resource(resource: Any) -> Content:
    text = getattr(resource, "text", None)
    if text is not None:
        return TextualContent(f"[{_label(resource.uri)}]\n{text}")
    name = _label(str(resource.uri).rstrip("/").rpartition("/")[2])
    return _binary(resource.blob, resource.mime_type or "application/octet-stream", name)


def _link(block: Any) -> str:
    facts = [block.mime_type, None if block.size is None else f"{block.size} bytes", block.description]
    about = "; ".join([_label(fact) for fact in facts if fact])
    return f"[resource {_label(block.title or block.name)}: {_label(block.uri)}{f' ({about})' if about else ''}]"


def _binary(encoded: str, mime_type: str, name: str = "") -> Content:
    """Return bytes with their type, or a text that explains why the bytes are too many or not base64."""
    kind = _label(mime_type)
    if len(encoded) * 3 // 4 > MAX_BYTES:
        return TextualContent(f"[{kind}, left out: more than {MAX_BYTES} bytes]")
    try:
        data = base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError):
        return TextualContent(f"[{kind}, left out: it is no base64]")
    return PictureContent(data, kind) if kind.startswith("image/") else FileContent(data, kind, name=name)


def _label(text: object) -> str:
    return " ".join(clean_text(str(text), _LABEL).split())


def _repeats(texts: list[str], structured: Any) -> bool:
    """True if the texts state this value: as JSON, verbatim, item by item, or as the value of its only key."""
    read = [_parse_json(text) for text in texts]
    forms = [structured, *(structured.values() if isinstance(structured, dict) and len(structured) == 1 else ())]
    return bool(texts) and any(form in read or form in texts or form in (read, texts) for form in forms)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
