"""The body of POST /responses, encoded and decoded.

It keeps no state: `previous_response_id` and `conversation` are for the server to resolve.
Laws: decode_request(encode_request(r).body) is r, as far as the wire carries it; items are in the order of their
canisters; every call's output follows its turn, in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from callboard import core
from callboard.core import contents, result_contents
from callboard.errors import CallerError
from callboard.wires.common.client_input import read_shape
from callboard.wires.common.contents import ITEM, content_kind, contents_with_title
from callboard.wires.common.custom_tools import custom_text
from callboard.wires.common.encoded_request import EncodedRequest, dedupe
from callboard.wires.common.group_turns import Turn, group_turns
from callboard.wires.common.tool_calls import arguments_object, past_arguments
from callboard.wires.responses.content import encode_content, encode_output_text
from callboard.wires.responses.decode_messages import MessageDecoder
from callboard.wires.responses.schema import ENCRYPTED, Format, ResponsesRequest
from callboard.wires.responses.tool_declarations import WIRE, ToolDecoder, ToolEncoder

_OUTPUTS = {"function": "function_call_output", "custom": "custom_tool_call_output"}


def instructions(canisters: Sequence[core.Canister]) -> str:
    """Return the text of the first supervisor, which is not an item if it is a single text."""
    match canisters[:1]:
        case [core.SupervisorCanister(content=(core.TextualContent(text=text),))]:
            return text
        case _:
            return ""


class MessageEncoder:
    """The items of canisters in `body`; `dropped` names what they could not carry."""

    def __init__(self, canisters: Sequence[core.Canister], *, model: str, tools: ToolEncoder) -> None:
        self.body: list[dict[str, Any]] = []
        self.dropped: list[str] = []
        self._model = model
        self._tools = tools
        for step in group_turns(canisters):
            match step:
                case Turn():
                    self._turn(step)
                case core.SupervisorCanister(content=content):
                    self._message("system", encode_content(content, self.dropped))
                case core.UserCanister(content=content):
                    self._message("user", encode_content(content, self.dropped))
                case core.ResultCanister():
                    self._message("user", encode_content(result_contents(step), self.dropped))
                case core.DocumentCanister():
                    self._message("user", encode_content(contents_with_title(step), self.dropped))

    def _message(self, role: str, content: Any, **fields: Any) -> None:
        self.body.append({"type": "message", "role": role, "content": content, **fields})

    def _turn(self, turn: Turn) -> None:
        for canister in turn.reply:
            if isinstance(canister, core.InvocationCanister):
                self.body.append(self._call(canister))
            else:
                self._assistant(canister)
        for call, result in zip(turn.invocations, turn.results, strict=True):
            self._result(call, result)

    def _assistant(self, canister: core.AssistantCanister) -> None:
        phase = {"phase": canister.extra["phase"]} if canister.extra and canister.extra.get("phase") else {}
        texts: list[core.TextualContent | core.RefusalContent] = []
        for content in canister.content:
            match content:
                case core.TextualContent() | core.RefusalContent():
                    texts.append(content)
                case core.ReasoningContent():
                    self._flush(texts, phase)
                    self._reasoning(content)
                case _:
                    self.dropped.append(content_kind(content))
        self._flush(texts, phase)

    def _flush(self, texts: list[core.TextualContent | core.RefusalContent], phase: dict[str, Any]) -> None:
        if texts:
            self._message("assistant", encode_output_text(texts), **phase)
            texts.clear()

    def _reasoning(self, content: core.ReasoningContent) -> None:
        if content.extra and isinstance(item := content.extra.get(ITEM), dict):
            self.body.append(item)
        elif content.origin != self._model:
            self.dropped.append(content_kind(content))
        elif content.opaque:
            summary = [{"type": "summary_text", "text": content.text}] if content.text else []
            self.body.append({"type": "reasoning", "summary": summary, "encrypted_content": content.opaque})
        elif content.text:
            thought = {"type": "reasoning_text", "text": content.text}
            self.body.append({"type": "reasoning", "summary": [], "content": [thought]})

    def _call(self, call: core.InvocationCanister) -> dict[str, Any]:
        head = {"call_id": call.identifier, **self._tools.name_fields(call.name)}
        match self._tools.kind(call.name):
            case "custom":
                return {"type": "custom_tool_call", **head, "input": custom_text(call.arguments, call.raw)}
            case "search":
                arguments = arguments_object(call.arguments, call.raw)
                return {"type": "tool_search_call", **_search_fields(call), "arguments": arguments}
            case "function":
                return {"type": "function_call", **head, "arguments": past_arguments(call)}

    def _result(self, call: core.InvocationCanister, result: core.ResultCanister) -> None:
        tool_kind = self._tools.kind(call.name)
        if tool_kind == "search":
            tools, whole = self._tools.encode_search_output(result)
            if not whole:
                self.dropped.append("text of a tool search's result")
            self.body.append({"type": "tool_search_output", **_search_fields(call), "tools": tools})
            return
        output = encode_content(result_contents(result), self.dropped)
        self.body.append({"type": _OUTPUTS[tool_kind], "call_id": call.identifier, "output": output})


def _search_fields(call: core.InvocationCanister) -> dict[str, Any]:
    return {"call_id": call.identifier, "execution": "client", "status": "completed"}


_FIELDS = frozenset(ResponsesRequest.__struct_fields__)
_CONTROLS = (("temperature", "temperature"), ("top_p", "top_p"), ("max_output_tokens", "max_tokens"))


class DecodedRequest(msgspec.Struct, frozen=True):
    """A client's request, and the names of what it could not hold."""

    request: core.Request
    dropped: tuple[str, ...] = ()


def encode_request(request: core.Request) -> EncodedRequest:
    """The request as a Responses body that leaves nothing at the provider and asks for reasoning to send back.

    Reasoning, `store` and `include` are overridden by `extra`; its `reasoning` and `text` are added to ours.
    """
    tool_encoder = ToolEncoder(request)
    body: dict[str, Any] = {"model": request.model}
    canisters = request.canisters
    if head := instructions(canisters):
        body["instructions"] = head
        canisters = canisters[1:]
    messages = MessageEncoder(canisters, model=request.model, tools=tool_encoder)
    body["input"] = messages.body
    dropped = [*tool_encoder.dropped, *messages.dropped]
    hosted = [{"type": tool.kind, **tool.definition} for tool in request.hosted if tool.wire == WIRE]
    dropped += [f"tool {tool.kind}" for tool in request.hosted if tool.wire != WIRE]
    if tools := tool_encoder.encode_tools() + hosted:
        body["tools"] = tools
        if request.tool_choice != "auto":
            body["tool_choice"] = tool_encoder.encode_choice(request.tool_choice)
        if request.parallel is not None:
            body["parallel_tool_calls"] = request.parallel
    elif request.tool_choice not in {"auto", "none"}:
        dropped.append("tool_choice")
    for field, name in _CONTROLS:
        if (value := getattr(request.controls, name)) is not None:
            body[field] = value
    dropped += [name for name in ("seed", "stop") if getattr(request.controls, name) not in (None, ())]
    extra = dict(request.extra)
    if reasoning := _merge_fields({"effort": request.controls.effort}, extra.pop("reasoning", None)):
        body["reasoning"] = reasoning
    constraint = request.constraint
    form = None if constraint is None else {"type": "json_schema", **msgspec.structs.asdict(constraint)}
    if text := _merge_fields({"format": form}, extra.pop("text", None)):
        body["text"] = text
    if request.stream:
        body["stream"] = True
    body["store"] = False
    body["include"] = [ENCRYPTED]
    body.update(extra)
    strict_tools = tool_encoder.strict_tools
    return EncodedRequest(body, tool_encoder.names, tuple(dropped), strict_tools.nullable, strict_tools.respelled)


def decode_request(body: Mapping[str, Any]) -> core.Request:
    """The request that a Responses body asks for. Raises CallerError with the path of an invalid part.

    Items and tools of any type are taken (`read_request` reports what was dropped). Fields about the answer to
    the client, such as `stream_options` and a false `store`, are left out. Other fields without a name here go to
    `extra` unchanged, also the other fields of `reasoning` and `text`.
    """
    return read_request(body).request


def read_request(body: Mapping[str, Any]) -> DecodedRequest:
    """As `decode_request`, with what was dropped."""
    parsed = read_shape(body, ResponsesRequest, "", "a Responses request")
    tool_decoder = ToolDecoder()
    tool_decoder.decode(parsed.tools, "tools")
    canisters: list[core.Canister] = (
        [core.SupervisorCanister(contents(parsed.instructions))] if parsed.instructions else []
    )
    dropped: list[str] = []
    if isinstance(parsed.input, str):
        if parsed.input:
            canisters.append(core.UserCanister(contents(parsed.input)))
    else:
        messages = MessageDecoder(parsed.input or (), model=parsed.model, tools=tool_decoder)
        canisters += messages.canisters
        dropped += messages.dropped
    choice = tool_decoder.decode_choice(parsed.tool_choice)
    extra = {name: value for name, value in body.items() if name not in _FIELDS and value is not None}
    if parsed.include is not None and parsed.include != [ENCRYPTED]:
        extra["include"] = parsed.include
    if parsed.store:
        extra["store"] = True
    reasoning, text = dict(parsed.reasoning or {}), dict(parsed.text or {})
    effort = reasoning.pop("effort", None)
    if not (effort is None or isinstance(effort, str)):
        raise CallerError("not an effort", path="reasoning.effort")
    constraint = _pop_constraint(text)
    extra |= {name: rest for name, rest in (("reasoning", reasoning), ("text", text)) if rest}
    request = core.Request(
        model=parsed.model,
        canisters=tuple(canisters),
        tools=tool_decoder.tools,
        tool_choice=choice,
        parallel=parsed.parallel_tool_calls,
        constraint=constraint,
        controls=core.Controls(parsed.temperature, parsed.top_p, parsed.max_output_tokens, effort=effort),
        stream=bool(parsed.stream),
        extra=extra,
        hosted=tool_decoder.hosted,
        namespaces=tool_decoder.namespaces,
    )
    return DecodedRequest(request, dedupe([*tool_decoder.dropped, *dropped]))


def _merge_fields(ours: Mapping[str, Any], extra: Any) -> dict[str, Any]:
    fields = {name: value for name, value in ours.items() if value is not None}
    return fields | dict(extra) if isinstance(extra, Mapping) else fields


def _pop_constraint(text: dict[str, Any]) -> core.Constraint | None:
    """The constraint in `text`, taken out of it; a format of another kind is left there."""
    form = text.get("format")
    kind = form.get("type") if isinstance(form, Mapping) else None
    if kind == "json_schema":
        del text["format"]
        parsed = read_shape(form, Format, "text.format", "a json_schema")
        return core.Constraint(parsed.name or "reply", parsed.schema, bool(parsed.strict))
    if form is None or kind == "text":
        text.pop("format", None)
    return None
