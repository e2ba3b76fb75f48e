"""Decode the items of a client's input into canisters.

Law: no type of item is refused. Calls of the provider's own tools are stored unchanged, for this wire only. Items that
no model can use are dropped, and `dropped` names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from callboard import core
from callboard.errors import CallerError
from callboard.wires.common.client_input import client_arguments, client_json, read_shape
from callboard.wires.common.contents import ITEM, unseal
from callboard.wires.common.tool_calls import parse_arguments
from callboard.wires.responses import schema
from callboard.wires.responses.content import decode_content, read_summary
from callboard.wires.responses.tool_declarations import NOTHING_FOUND, ToolDecoder

_RUN_BY_CLIENT: Mapping[str, tuple[str, str]] = {
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
    "apply_patch_call": ("apply_patch", "operation"),
    "computer_call": ("computer", "action"),
}
"""Calls of OpenAI's own tools that the client runs: the tool's name, and the field with what it is called with."""
_KEPT = frozenset(
    {
        "compaction",
        "compaction_summary",
        "context_compaction",
        "mcp_approval_request",
        "mcp_list_tools",
        "program",
        "program_output",
    }
)


class MessageDecoder:
    """The conversation; reasoning whose origin is not known is taken to be the asked model's own.

    Tools that are declared among the items are added to `tools`. Raises CallerError with the path of an item
    that is not what its type says.
    """

    def __init__(self, items: Iterable[Mapping[str, Any]], *, model: str, tools: ToolDecoder) -> None:
        self.canisters: list[core.Canister] = []
        self.dropped: list[str] = []
        self._model = model
        self._tools = tools
        self._turn: list[core.Content] = []
        self._identifiers: dict[str, str] = {}
        for index, item in enumerate(items):
            self._decode_item(item, f"input[{index}]")
        self._close_turn()

    def _decode_item(self, item: Mapping[str, Any], path: str) -> None:
        match item.get("type") or ("message" if "role" in item else None):
            case "message":
                self._message(read_shape(item, schema.Message, path, "a message"), path)
            case "function_call":
                call = read_shape(item, schema.Call, path, "a function call")
                self._call(call, _call_name(call, path), call.arguments, path)
            case "function_call_output" | "custom_tool_call_output" | "mcp_tool_call_output":
                self._output(read_shape(item, schema.Output, path, "a call's output"), path)
            case "reasoning":
                self._reasoning(read_shape(item, schema.Reasoning, path, "reasoning"), path)
            case "custom_tool_call":
                call = read_shape(item, schema.Call, path, "a custom tool's call")
                self._call(call, _call_name(call, path), {core.CUSTOM_KEY: call.input}, path)
            case "additional_tools":
                self._tools.decode(read_shape(item, schema.Tools, path, "additional tools").tools, f"{path}.tools")
            case "tool_search_call" if item.get("call_id"):
                call = read_shape(item, schema.Call, path, "a tool search")
                self._call(call, schema.SEARCH, call.arguments, path)
            case "tool_search_output":
                self._search_output(read_shape(item, schema.Output, path, "the output of a tool search"), path)
            case "agent_message":
                message = read_shape(item, schema.AgentMessage, path, "an agent's message")
                self._add(
                    core.UserCanister(_author(message.author) + decode_content(message.content, path, self.dropped))
                )
            case str(kind) if kind in _RUN_BY_CLIENT and (item.get("call_id") or item.get("id")):
                name, field = _RUN_BY_CLIENT[kind]
                self._call(read_shape(item, schema.Call, path, "a call"), name, item.get(field), path)
            case str(kind) if kind.removesuffix("_output") in _RUN_BY_CLIENT:
                self._output(read_shape(item, schema.Output, path, "a call's output"), path)
            case "compaction" if (summary := read_summary(item.get("encrypted_content"))) is not None:
                self._add(core.UserCanister((core.TextualContent(summary),)))
            case str(kind) if kind in _KEPT or kind.endswith("_call"):
                self._turn.append(core.ReasoningContent("", extra={ITEM: dict(item)}))
            case kind:
                self.dropped.append(f"item {kind}")

    def _close_turn(self) -> None:
        if self._turn:
            self.canisters.append(core.AssistantCanister(tuple(self._turn)))
            self._turn = []

    def _add(self, canister: core.Canister) -> None:
        self._close_turn()
        self.canisters.append(canister)

    def _message(self, message: schema.Message, path: str) -> None:
        content = decode_content(message.content, f"{path}.content", self.dropped)
        match message.role:
            case "user":
                self._add(core.UserCanister(content))
            case "system" | "developer":
                self._add(core.SupervisorCanister(content))
            case "assistant":
                extra = {"phase": message.phase} if message.phase else None
                self.canisters.append(core.AssistantCanister((*self._turn, *content), extra=extra))
                self._turn = []
            case "tool" if message.tool_call_id:  # as chat has it; some clients send it here
                self._add(core.ResultCanister(content, invocation_id=message.tool_call_id))
            case role:
                raise CallerError(f"no role {role!r}", path=f"{path}.role", hint="user, assistant, system, developer")

    def _reasoning(self, item: schema.Reasoning, path: str) -> None:
        parts = decode_content(item.content, f"{path}.content", self.dropped)
        parts = parts or decode_content(item.summary, f"{path}.summary", self.dropped)
        text = "\n\n".join([part.text for part in parts if isinstance(part, core.TextualContent)])
        opaque, origin = unseal(item.encrypted_content or "", self._model)
        if text or opaque:
            self._turn.append(core.ReasoningContent(text, opaque, origin))

    def _call(self, call: schema.Call, name: str, arguments: Any, path: str) -> None:
        identifier = call.call_id or call.id
        if not identifier:
            raise CallerError("a call without call_id", path=f"{path}.call_id")
        if call.id:
            self._identifiers[call.id] = identifier
        raw = client_arguments(arguments, path)
        self._add(core.InvocationCanister(identifier, name, parse_arguments(raw), raw))

    def _output(self, output: schema.Output, path: str) -> None:
        identifier = output.call_id or self._identifiers.get(output.id or "", output.id or "")
        if not (identifier or output.name):
            raise CallerError("an output without call_id", path=f"{path}.call_id")
        value = output.output
        if isinstance(value, dict) and "type" in value:
            value = [value]
        are_parts = isinstance(value, list) and all(isinstance(part, dict) and "type" in part for part in value)
        if not (isinstance(value, str) or value is None or are_parts):
            value = client_json(value, path)
        content = decode_content(value, f"{path}.output", self.dropped)
        if not output.call_id and output.name:  # Codex's app tells so what the user did in it
            content = _author(output.name) + content
        self._add(core.ResultCanister(content, invocation_id=identifier))

    def _search_output(self, output: schema.Output, path: str) -> None:
        found_tools = ToolDecoder()
        found_tools.decode(output.tools, f"{path}.tools")
        self._tools.decode(output.tools, f"{path}.tools")
        if output.call_id:
            names = "\n".join([tool.name for tool in found_tools.tools]) or NOTHING_FOUND
            self._add(core.ResultCanister((core.TextualContent(names),), invocation_id=output.call_id))


def _call_name(call: schema.Call, path: str) -> str:
    if not call.name:
        raise CallerError("a call without a name", path=f"{path}.name")
    return f"{call.namespace}__{call.name}" if call.namespace else call.name


def _author(author: str | None) -> tuple[core.Content, ...]:
    return (core.TextualContent(f"From {author}:\n"),) if author else ()
