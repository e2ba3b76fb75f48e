"""The body and path of POST /models/MODEL:generateContent, encoded and decoded.

The model, and whether it streams, are in the URL.
Law: decode_request(encode_request(r).body, model=r.model, stream=r.stream) is r, as far as the wire carries it.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

import msgspec

from callboard import core
from callboard.errors import CallerError
from callboard.wires.common.client_input import check_model_name, extra_for, input_error, unnamed_fields
from callboard.wires.common.encoded_request import EncodedRequest
from callboard.wires.common.tool_declarations import NO_SCHEMA, LetteredToolNames, StrictTools, dropped_descriptions
from callboard.wires.field_mapping import BUDGETS, effort_of
from callboard.wires.gemini.decode_messages import MessageDecoder, instructions
from callboard.wires.gemini.encode_messages import MessageEncoder
from callboard.wires.gemini.schema import (
    CallingConfig,
    Declaration,
    GenerateRequest,
    GenerationConfig,
    ThinkingConfig,
    ToolConfig,
    camel_case,
    decode_schema,
    wrap_lists,
)

_CONFIG_FIELDS = {"maxOutputTokens": "max_tokens", "temperature": "temperature", "topP": "top_p", "seed": "seed"}
_LEVELS = {**{effort: effort.upper() for effort in BUDGETS}, "max": "XHIGH"}
_EFFORTS = {level: effort for effort, level in reversed(_LEVELS.items())}


def encode_controls(controls: core.Controls, dropped: list[str]) -> dict[str, Any]:
    config = {name: value for name, ours in _CONFIG_FIELDS.items() if (value := getattr(controls, ours)) is not None}
    if controls.stop:
        config["stopSequences"] = list(controls.stop)
    if controls.effort is not None:
        thinking = _encode_effort(controls.effort)
        if thinking is None or _decode_effort(thinking) != controls.effort:
            dropped.append(f"effort {controls.effort}")
        if thinking is not None:
            config["thinkingConfig"] = thinking
    return config


def _encode_effort(effort: str) -> dict[str, Any] | None:
    """The thinkingConfig of an effort, or of the nearest known effort; None for an unknown word."""
    if effort == "none":
        return {"thinkingBudget": 0}
    if effort not in _LEVELS:
        return None
    return {"includeThoughts": True, "thinkingLevel": _LEVELS[effort]}


def _decode_effort(thinking: Mapping[str, Any]) -> str | None:
    """The effort that a thinkingConfig asks for; a budget of -1 leaves it to the model."""
    if (level := thinking.get("thinkingLevel")) is not None:
        return _EFFORTS.get(level.upper())
    if (budget := thinking.get("thinkingBudget")) is None or budget < 0:
        return None
    return effort_of(budget)


def decode_controls(generation: GenerationConfig, rest: dict[str, Any]) -> core.Controls:
    """The controls; what they say whole is no longer in `rest`."""
    for name in (*_CONFIG_FIELDS, "stopSequences"):
        rest.pop(name, None)
    effort = _pop_effort(generation.thinking_config, rest)
    return core.Controls(
        generation.temperature,
        generation.top_p,
        generation.max_output_tokens,
        generation.seed,
        tuple(generation.stop_sequences or ()),
        effort,
    )


def _pop_effort(thinking: ThinkingConfig | None, rest: dict[str, Any]) -> str | None:
    if thinking is None:
        return None
    effort = _decode_effort({"thinkingLevel": thinking.thinking_level, "thinkingBudget": thinking.thinking_budget})
    if effort is not None:
        of_older_models = {"includeThoughts": True, "thinkingBudget": BUDGETS.get(effort)}
        if rest["thinkingConfig"] in (_encode_effort(effort), of_older_models):
            del rest["thinkingConfig"]
    return effort


WIRE = "gemini"
JSON = "application/json"
_FIELDS = frozenset(msgspec.json.decode(msgspec.json.encode(GenerateRequest([]))))
_DECLARED = frozenset(field.encode_name for field in msgspec.structs.fields(Declaration))
_COLLECTIONS = frozenset({"models", "tunedModels", "dynamic"})
"""Part before the slash in a model's full name, as in the API's discovery document."""
_UNRESERVED = frozenset(f"{string.ascii_letters}{string.digits}-._~".encode())
"""Characters that a URL does not quote (RFC 3986, 2.3)."""
_MERGED = ("generationConfig", "toolConfig")
"""Objects whose fields are ours and `extra`'s."""
_VALIDATED = "VALIDATED"
"""The mode in which the model may answer or call, with arguments that fit the schema; it may list the tools."""
_MODES: Mapping[str, core.ToolChoice] = {
    "AUTO": "auto",
    "MODE_UNSPECIFIED": "auto",
    _VALIDATED: "auto",
    "NONE": "none",
    "ANY": "required",
}


def request_path(model: str, *, stream: bool) -> str:
    """Return the path to append to the endpoint's base URL, which ends in the API's version.

    Raises:
        CallerError: The name would be more than one segment of the path, or name another method.
    """
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/{_resource(model)}:{method}"


def encode_request(request: core.Request, *, dummy_signature: str = "") -> EncodedRequest:
    """The request as a body. Omit values that are None or the wire's default.

    Schemas are sent as JSON Schema, the effort as a thinkingLevel. `dummy_signature` is as of `MessageEncoder`.
    """
    names = LetteredToolNames(request)
    messages = MessageEncoder(request, names, dummy_signature)
    dropped = messages.dropped
    body: dict[str, Any] = {"contents": messages.body}
    if messages.system:
        body["systemInstruction"] = {"parts": messages.system}
    strict_tools = StrictTools(WIRE)
    if tools := _encode_tools(request, names, dropped, strict_tools):
        body["tools"] = tools
    if request.tools:
        if request.tool_choice != "auto":
            body["toolConfig"] = {"functionCallingConfig": _encode_choice(request.tool_choice, names)}
        if request.parallel is False:
            dropped.append("parallel")
    elif request.tool_choice not in {"auto", "none"}:
        dropped.append("tool_choice")
    dropped += dropped_descriptions(request.namespaces)
    generation = encode_controls(request.controls, dropped)
    if (constraint := request.constraint) is not None:
        generation["responseMimeType"] = JSON
        generation["responseJsonSchema"] = constraint.schema
    if generation:
        body["generationConfig"] = generation
    for name, value in request.extra.items():
        merged = name in _MERGED and isinstance(value, Mapping)
        body[name] = {**body.get(name, {}), **value} if merged else value
    return EncodedRequest(body, names.reverse, tuple(dropped), respelled=strict_tools.respelled)


def decode_request(body: Mapping[str, Any], *, model: str = "", stream: bool = False) -> core.Request:
    """The request that a body asks for; `model` and `stream` are what its URL says.

    Raises CallerError with the path of an invalid part. Without `model` the body's own counts, which the API has
    for batches. Names may be in snake case, as in Google's own examples. Fields without a name here go to
    `extra` unchanged; fields of generationConfig and toolConfig go below these names.
    """
    try:
        body = wrap_lists(camel_case(body))
        parsed = msgspec.convert(body, GenerateRequest)
        model = (model or parsed.model or "").removeprefix("models/")
        if not model:
            hint = "it stands in the URL: /models/MODEL:generateContent"
            raise CallerError("no model is named", path="model", hint=hint)
        canisters = (*instructions(parsed.system_instruction), *MessageDecoder(parsed.contents, model=model).canisters)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise input_error(error, "", "a generateContent request") from None
    extra = {name: value for name, value in body.items() if name not in _FIELDS and value is not None}
    declared, hosted = _decode_tools(parsed, body)
    choice, declared, config = _decode_choice(parsed.tool_config, declared, body)
    if config:
        extra["toolConfig"] = config
    generation = parsed.generation_config or GenerationConfig()
    rest = dict(body.get("generationConfig") or {})
    controls = decode_controls(generation, rest)
    constraint = _decode_constraint(generation, rest)
    if rest := {name: value for name, value in rest.items() if value is not None}:
        extra["generationConfig"] = rest
    return core.Request(
        model=model,
        canisters=canisters,
        tools=declared,
        tool_choice=choice,
        constraint=constraint,
        controls=controls,
        stream=stream,
        extra=extra,
        hosted=hosted,
    )


def _resource(model: str) -> str:
    check_model_name(model)
    collection, slash, name = model.partition("/")
    if not slash:
        collection, name = "models", model
    # A colon ends the name, and aiohttp would send a quoted one as it is.
    if collection not in _COLLECTIONS or not name.strip(".") or "/" in name or ":" in name:
        hint = "it is MODEL, models/MODEL or tunedModels/MODEL, and MODEL has neither / nor :"
        raise CallerError("not the name of a Gemini model", path="model", hint=hint)
    quoted = "".join([chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in name.encode()])
    return f"{collection}/{quoted}"


def _encode_tools(
    request: core.Request, names: LetteredToolNames, dropped: list[str], strict_tools: StrictTools
) -> list[dict[str, Any]]:
    declarations = [_encode_tool(strict_tools.fit(tool), names, dropped) for tool in request.tools]
    dropped += strict_tools.dropped
    dropped += [f"tool {tool.kind}" for tool in request.hosted if tool.wire != WIRE]
    hosted = [{tool.kind: tool.definition} for tool in request.hosted if tool.wire == WIRE]
    return [{"functionDeclarations": declarations}, *hosted] if declarations else hosted


def _encode_tool(tool: core.ToolDeclaration, names: LetteredToolNames, dropped: list[str]) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": names.on_wire(tool.name)}
    if description := tool.full_description:
        declaration["description"] = description
    if tool.strict:
        dropped.append("strict")
    declaration["parametersJsonSchema"] = tool.schema
    return {**declaration, **tool.extra.get(WIRE, {})}


def _encode_choice(choice: core.ToolChoice, names: LetteredToolNames) -> dict[str, Any]:
    if isinstance(choice, core.NamedTool):
        return {"mode": "ANY", "allowedFunctionNames": [names.on_wire(choice.name)]}
    return {"mode": {"none": "NONE", "required": "ANY"}.get(choice, "AUTO")}


def _decode_tools(
    parsed: GenerateRequest, body: Mapping[str, Any]
) -> tuple[tuple[core.ToolDeclaration, ...], tuple[core.HostedTool, ...]]:
    declared: list[core.ToolDeclaration] = []
    hosted: list[core.HostedTool] = []
    for tool, raw in zip(parsed.tools or [], body.get("tools") or [], strict=True):
        declared += map(_decode_tool, tool.function_declarations or [], raw.get("functionDeclarations") or [])
        for kind, definition in raw.items():
            if kind != "functionDeclarations" and isinstance(definition, Mapping):
                hosted.append(core.HostedTool(WIRE, kind, definition))
    return tuple(declared), tuple(hosted)


def _decode_tool(declaration: Declaration, raw: Mapping[str, Any]) -> core.ToolDeclaration:
    schema = declaration.parameters_json_schema
    if schema is None and declaration.parameters:
        schema = decode_schema(declaration.parameters)
    extra = extra_for(WIRE, unnamed_fields(raw, _DECLARED))
    return core.ToolDeclaration(declaration.name, declaration.description or "", schema or NO_SCHEMA, extra=extra)


def _decode_choice(
    config: ToolConfig | None, declared: tuple[core.ToolDeclaration, ...], body: Mapping[str, Any]
) -> tuple[core.ToolChoice, tuple[core.ToolDeclaration, ...], dict[str, Any]]:
    """The choice, the tools that it leaves, and what else the toolConfig says."""
    rest = {name: value for name, value in (body.get("toolConfig") or {}).items() if value is not None}
    calling = config.function_calling_config if config is not None else None
    if calling is None:
        rest.pop("functionCallingConfig", None)
        return "auto", declared, rest
    if (
        rest["functionCallingConfig"].keys() <= {"mode", "allowedFunctionNames"}
        and (calling.mode or "").upper() != _VALIDATED
    ):
        del rest["functionCallingConfig"]
    return *_decode_mode(calling, declared), rest


def _decode_mode(
    calling: CallingConfig, declared: tuple[core.ToolDeclaration, ...]
) -> tuple[core.ToolChoice, tuple[core.ToolDeclaration, ...]]:
    mode = calling.mode or "AUTO"
    choice = _MODES.get(mode.upper())
    if choice is None:
        path = "toolConfig.functionCallingConfig.mode"
        raise CallerError(f"no mode {mode!r}", path=path, hint="there are AUTO, ANY, NONE and VALIDATED")
    names = calling.allowed_function_names or []
    if choice == "required" and len(names) == 1:
        return core.NamedTool(names[0]), declared
    if names and (choice == "required" or mode.upper() == _VALIDATED):
        declared = tuple([tool for tool in declared if tool.name in names])
    return choice, declared


def _decode_constraint(generation: GenerationConfig, rest: dict[str, Any]) -> core.Constraint | None:
    """The schema of the reply; what it took is no longer in `rest`."""
    if generation.response_mime_type == "text/plain":
        rest.pop("responseMimeType")
    schema = generation.response_json_schema
    if schema is None and generation.response_schema is not None:
        schema = decode_schema(generation.response_schema)
    if generation.response_mime_type != JSON or schema is None:
        return None
    for name in ("responseMimeType", "responseJsonSchema", "responseSchema"):
        rest.pop(name, None)
    return core.Constraint("reply", schema)
