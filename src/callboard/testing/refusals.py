"""The checks of the strict fakes: each reads a request's body and says in the real server's words why it is refused.

The module is long because it is a list: a check is one function that uses none of the others, found by its rule in
`strict.py`. A check returns None for a body that the server takes. Bodies may have any shape, for a test may send anything: what a
check cannot read it lets pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, TypeAlias

Body: TypeAlias = Mapping[str, Any]
Check: TypeAlias = Callable[[Body], str | None]


def messages(body: Body) -> list[Mapping[str, Any]]:
    return _objects(body.get("messages"))


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _calls(body: Body) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The calls of past replies, each with the index of its message."""
    for index, message in enumerate(messages(body)):
        if message.get("role") == "assistant":
            for call in _objects(message.get("tool_calls")):
                yield index, call


def _arguments(body: Body) -> Iterator[Any]:
    for _, call in _calls(body):
        function = call.get("function")
        if isinstance(function, Mapping):
            yield function.get("arguments")


def _parts(body: Body) -> Iterator[Mapping[str, Any]]:
    for message in messages(body):
        yield from _objects(message.get("content"))


def _tools(body: Body) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The declared functions, each with the index of its tool."""
    for index, item in enumerate(_objects(body.get("tools"))):
        if isinstance(function := item.get("function"), Mapping):
            yield index, function


def _schemas(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A schema and all that are in it, each with its path."""
    yield path, schema
    if not isinstance(schema, Mapping):
        return
    for keyword in ("properties", "$defs"):
        if isinstance(named := schema.get(keyword), Mapping):
            for name, inner in named.items():
                yield from _schemas(inner, (*path, keyword, str(name)))
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(listed := schema.get(keyword), list):
            for index, inner in enumerate(listed):
                yield from _schemas(inner, (*path, keyword, str(index)))
    if isinstance(items := schema.get("items"), Mapping):
        yield from _schemas(items, (*path, "items"))


def _parse(arguments: Any) -> Any:
    """Raises JSONDecodeError for a text that is no JSON."""
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def _forced_choice(body: Body) -> str:
    """How a call is forced: `required`, `specified` for a named tool, empty if none is."""
    choice = body.get("tool_choice")
    return "specified" if isinstance(choice, Mapping) else "required" if choice == "required" else ""


def _thinks(body: Body) -> bool:
    """Thinking is on unless it is switched off, as with the providers whose checks ask for it."""
    thinking = body.get("thinking")
    return not isinstance(thinking, Mapping) or thinking.get("type") != "disabled"


def effort_is_one_of(*efforts: str, words: str) -> Check:
    """`words` is the message, with `{}` for what was asked for."""

    def check(body: Body) -> str | None:
        effort = body.get("reasoning_effort")
        return None if effort is None or effort in efforts else words.format(effort)

    return check


# Messages.


def content_or_calls(body: Body) -> str | None:
    for message in messages(body):
        if message.get("role") != "assistant":
            if "content" not in message:
                return "All non-assistant messages must contain 'content'"
        elif "content" not in message and "tool_calls" not in message:
            return "Assistant message must contain either 'content' or 'tool_calls'!"
    return None


def content_without_calls(body: Body) -> str | None:
    for message in messages(body):
        if message.get("content") is None and message.get("tool_calls") is None:
            return "invalid message content type: <nil>"
    return None


def one_reply_last(body: Body) -> str | None:
    if [message.get("role") for message in messages(body)][-2:] == ["assistant", "assistant"]:
        return "Cannot have 2 or more assistant messages at the end of the list."
    return None


def no_prefill_with_thinking(body: Body) -> str | None:
    """Thinking is on as it is by default for a template that knows it."""
    template = body.get("chat_template_kwargs")
    thinks = not isinstance(template, Mapping) or template.get("enable_thinking", True)
    if thinks and _last_role(body) == "assistant":
        return "Assistant response prefill is incompatible with enable_thinking."
    return None


def user_or_tool_last(body: Body) -> str | None:
    if _last_role(body) == "assistant" and not messages(body)[-1].get("prefix"):
        return "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant"
    return None


def _last_role(body: Body) -> Any:
    listed = messages(body)
    return listed[-1].get("role") if listed else None


def no_user_after_tool(body: Body) -> str | None:
    roles = [message.get("role") for message in messages(body)]
    if ("tool", "user") in pairwise(roles):
        return "Unexpected role 'user' after role 'tool'"
    return None


def one_system_first(body: Body) -> str | None:
    misplaced = any(message.get("role") == "system" for message in messages(body)[1:])
    return "System message must be at the beginning." if misplaced else None


def roles_of_qwen(body: Body) -> str | None:
    known = ("system", "user", "assistant", "tool")
    return None if all(message.get("role") in known for message in messages(body)) else "Unexpected message role."


def a_question(body: Body) -> str | None:
    expected = any(message.get("role") == "user" for message in messages(body))
    return None if expected else "No user query found in messages."


def roles_alternate(body: Body) -> str | None:
    roles = [str(message.get("role")) for message in messages(body)]
    turns = roles[1:] if roles[:1] == ["system"] else roles
    if any((role == "user") != (index % 2 == 0) for index, role in enumerate(turns)):
        return "Conversation roles must alternate user/assistant/user/assistant/..."
    return None


def one_system(body: Body) -> str | None:
    systems = [message for message in messages(body) if message.get("role") == "system"]
    return "invalid params, invalid chat setting (2013)" if len(systems) > 1 else None


def roles_of_deepseek(body: Body) -> str | None:
    known = ("system", "user", "assistant", "tool", "latest_reminder")
    for index, message in enumerate(messages(body)):
        if (role := message.get("role")) not in known:
            listed = ", ".join(f"`{name}`" for name in known)
            return (
                "Failed to deserialize the JSON body into the target type: "
                f"messages[{index}].role: unknown variant `{role}`, expected one of {listed} at line 1 column 51036"
            )
    return None


# Parts.

_VLLM_PARTS = (
    "audio_embeds",
    "audio_url",
    "image_embeds",
    "image_pil",
    "image_url",
    "input_audio",
    "input_image",
    "input_text",
    "output_text",
    "prompt_embeds",
    "refusal",
    "text",
    "thinking",
    "tool_reference",
    "video_url",
)


def parts_of_vllm(body: Body) -> str | None:
    for part in _parts(body):
        if part.get("type") not in _VLLM_PARTS:
            listed = ", ".join(_VLLM_PARTS)
            return f"Unsupported chat content part type: {part.get('type')!r}. Supported types: {listed}."
    return None


def parts_of_llama_cpp(body: Body) -> str | None:
    known = {"text", "image_url", "input_audio"}
    return "unsupported content[].type" if any(part.get("type") not in known for part in _parts(body)) else None


def text_parts(body: Body) -> str | None:
    """As of a model without a projector: pictures and sounds are named in the refusal."""
    unsupported = {"image_url": "image input is not supported", "input_audio": "audio input is not supported"}
    for part in _parts(body):
        if refusal := unsupported.get(str(part.get("type"))):
            return f"{refusal} - hint: if this is unexpected, you may need to provide the mmproj"
    return None


def parts_of_ollama(body: Body) -> str | None:
    for part in _parts(body):
        if part.get("type") not in ("text", "image_url"):
            return "invalid message format"
        picture = part.get("image_url")
        address = picture.get("url") if isinstance(picture, Mapping) else picture
        if part["type"] == "image_url" and not str(address).startswith("data:"):
            return "invalid image input"
    return None


def text_results(body: Body) -> str | None:
    for index, message in enumerate(messages(body)):
        if message.get("role") == "tool" and isinstance(message.get("content"), list):
            why = f"messages[{index}]: invalid type: sequence, expected a string at line 1 column 45446"
            return f"Failed to deserialize the JSON body into the target type: {why}"
    return None


# Calls and results.


def past_arguments_of_vllm(body: Body) -> str | None:
    """In the words of Python's decoder. Missing and empty ones are read as an empty object."""
    for arguments in _arguments(body):
        try:
            _parse(arguments or "{}")
        except json.JSONDecodeError as error:
            return str(error)
    return None


def past_arguments_of_llama_cpp(body: Body) -> str | None:
    for arguments in _arguments(body):
        try:
            _parse(arguments)
        except json.JSONDecodeError as error:
            return f"Failed to parse tool call arguments as JSON: {_in_words_of_nlohmann(error)}"
    return None


def _in_words_of_nlohmann(error: json.JSONDecodeError) -> str:
    if not error.doc:
        why = "attempting to parse an empty input; check that your input string or stream contains the expected JSON"
    elif error.msg.startswith("Unterminated string"):
        last = error.doc[error.pos :]
        why = f"syntax error while parsing value - invalid string: missing closing quote; last read: '{last}'"
    else:
        why = "syntax error while parsing value - unexpected end of input; expected '[', '{', or a literal"
    return f"[json.exception.parse_error.101] parse error at line {error.lineno}, column {len(error.doc) + 1}: {why}"


def past_arguments_of_sglang(body: Body) -> str | None:
    for arguments in _arguments(body):
        try:
            parsed = _parse(arguments)
        except json.JSONDecodeError:
            return "Assistant tool call function.arguments must be valid JSON."
        if not isinstance(parsed, Mapping):
            return "Assistant tool call function.arguments must be a JSON object."
    return None


def past_arguments_of_ollama(body: Body) -> str | None:
    return "invalid tool call arguments" if past_arguments_of_sglang(body) else None


def arguments_have_items(body: Body) -> str | None:
    """A template that writes one argument after the other; what does not parse was refused by the server before."""
    for arguments in _arguments(body):
        try:
            parsed = _parse(arguments or "{}")
        except json.JSONDecodeError:
            continue
        if not isinstance(parsed, Mapping):
            return "Can only get item pairs from a mapping."
    return None


def results_of_every_call(body: Body) -> str | None:
    """Each reply's calls are answered by the messages that follow, and each result follows such a reply."""
    due: list[str] = []
    expected: set[str] = set()
    for message in messages(body):
        identifier = str(message.get("tool_call_id"))
        if message.get("role") == "tool":
            if identifier not in expected:
                return (
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'."
                )
            due = [each for each in due if each != identifier]
            continue
        if due:
            return _missing(due)
        due = [str(call.get("id")) for call in _objects(message.get("tool_calls"))]
        expected = set(due)
    return _missing(due) if due else None


def _missing(identifiers: Iterable[str]) -> str:
    return (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(identifiers)}"
    )


# Reasoning.


def reasoning_passed_back(body: Body) -> str | None:
    if _thinks(body) and any(not messages(body)[index].get("reasoning_content") for index, _ in _calls(body)):
        return "The `reasoning_content` in the thinking mode must be passed back to the API."
    return None


def reasoning_with_calls(body: Body) -> str | None:
    for index, _ in _calls(body):
        if _thinks(body) and messages(body)[index].get("reasoning_content") is None:
            return (
                f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {index}"
            )
    return None


def no_reasoning_for_groq(body: Body) -> str | None:
    for index, message in enumerate(messages(body)):
        for field in ("reasoning_content", "reasoning"):
            if message.get("role") == "assistant" and field in message:
                why = f"('messages.{index}' : property '{field}' is unsupported)"
                return f"'messages.{index}' : for 'role:assistant' the following must be satisfied[{why}]"
    return None


def no_more_fields(body: Body) -> str | None:
    """Mistral's, for fields of which a thread shows the refusal; the message is JSON."""
    extra: list[tuple[list[Any], Any]] = [
        (["body", "messages", index, "assistant", "reasoning_content"], message["reasoning_content"])
        for index, message in enumerate(messages(body))
        if message.get("role") == "assistant" and "reasoning_content" in message
    ]
    if "max_completion_tokens" in body:
        extra.append((["body", "max_completion_tokens"], body["max_completion_tokens"]))
    error = {"type": "extra_forbidden", "msg": "Extra inputs are not permitted"}
    return json.dumps({"detail": [error | {"loc": place, "input": value} for place, value in extra]}) if extra else None


# Tools and options.


def choice_of_deepseek(body: Body) -> str | None:
    return "Thinking mode does not support this tool_choice" if _thinks(body) and _forced_choice(body) else None


def choice_of_kimi(body: Body) -> str | None:
    forced = _forced_choice(body)
    return f"tool_choice '{forced}' is incompatible with thinking enabled" if _thinks(body) and forced else None


def thinking_or_effort(body: Body) -> str | None:
    both = body.get("thinking") is not None and body.get("reasoning_effort") is not None
    return "cannot specify both 'thinking' and 'reasoning_effort'" if both else None


def choice_of_vllm(body: Body) -> str | None:
    choice = body.get("tool_choice")
    if choice in (None, "none"):
        return None
    if body.get("tools") is None:
        return "When using `tool_choice`, `tools` must be set."
    if choice not in ("auto", "required") and not isinstance(choice, Mapping):
        supported = 'Only named tools, "none", "auto" or "required" are supported.'
        return f"Invalid value for `tool_choice`: {choice}! {supported}"
    return None


def no_automatic_choice(body: Body) -> str | None:
    automatic = body.get("tool_choice", "auto" if body.get("tools") else None) == "auto"
    refusal = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    return refusal if automatic else None


def choice_of_llama_cpp(body: Body) -> str | None:
    choice = body.get("tool_choice")
    known = not isinstance(choice, str) or choice in ("auto", "none", "required")
    return None if known else f"Invalid tool_choice: {choice}"


def choice_of_sglang(body: Body) -> str | None:
    choice, names = body.get("tool_choice"), [function.get("name") for _, function in _tools(body)]
    if choice == "required" and not names:
        return "Tools cannot be empty if tool choice is set to required."
    if not isinstance(choice, Mapping):
        return None
    if not names:
        return "Tools cannot be empty if tool choice is set to a specific tool."
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    return None if name in names else f"Tool '{name}' not found in tools list."


def some_tools(body: Body) -> str | None:
    refusal = "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely."
    return refusal if body.get("tools") == [] else None


def some_messages(body: Body) -> str | None:
    return "Messages cannot be empty." if body.get("messages") == [] else None


def stream_options_of_a_stream(body: Body) -> str | None:
    refused = body.get("stream_options") and not body.get("stream")
    return "Stream options can only be defined when `stream=True`." if refused else None


def no_logprobs_of_streamed_calls(body: Body) -> str | None:
    refused = body.get("logprobs") and body.get("tools") and body.get("stream")
    return "logprobs is not supported with tools + stream" if refused else None


def one_choice(body: Body) -> str | None:
    count = body.get("n")
    return None if count in (None, 1) else f"Field 'n': Value must be between 1 <= value <= 1, but got {count}"


def function_tools(body: Body) -> str | None:
    for tool in _objects(body.get("tools")):
        if tool.get("type", "function") != "function":
            listed = json.dumps(body["tools"], indent=2)
            return f"Failed to parse tools: Unsupported tool type: {json.dumps(tool)}; tools = {listed}"
    return None


def no_parallel_option(body: Body) -> str | None:
    refusal = "Unsupported parameter: 'parallel_tool_calls' is not supported with this model."
    return refusal if "parallel_tool_calls" in body else None


def one_strictness(body: Body) -> str | None:
    """A tool that does not say is not strict."""
    if len({bool(function.get("strict")) for _, function in _tools(body)}) < 2:
        return None
    return (
        "Tools with mixed values for 'strict' are not allowed. Please set all tools to 'strict: true' or "
        "'strict: false'"
    )


def at_least_16_tokens(body: Body) -> str | None:
    tokens = body.get("max_output_tokens")
    if not isinstance(tokens, int) or tokens >= 16:
        return None
    return (
        f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got {tokens} instead."
    )


def at_most_128_tools(body: Body) -> str | None:
    tools = body.get("tools")
    if not isinstance(tools, list) or len(tools) <= 128:
        return None
    return (
        "Invalid 'tools': array too long. Expected an array with maximum length 128, "
        f"but got an array with length {len(tools)} instead."
    )


# Schemas of parameters.

_TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}


def schemas_of_llama_cpp(body: Body) -> str | None:
    """What its converter cannot turn into a grammar."""
    for _, function in _tools(body):
        whole = function.get("parameters")
        for path, schema in _schemas(whole):
            if why := _not_converted(schema, whole):
                return (
                    "Unable to generate parser for this template. Automatic parser generation failed: "
                    f"JSON schema error at {'/'.join(('#', *path))}: {why}"
                )
    return None


def _not_converted(schema: Any, whole: Any) -> str | None:
    if not isinstance(schema, Mapping):
        return "schema must be an object" if isinstance(schema, bool) else None
    reference, kind = schema.get("$ref"), schema.get("type")
    if isinstance(reference, str) and not reference.startswith("#"):
        return f"unsupported $ref {reference}, only references into the same document are supported"
    if isinstance(reference, str):
        place = whole
        for key in reference.split("/")[1:]:
            if not isinstance(place, Mapping) or key not in place:
                return f"cannot resolve $ref {reference}, {key} not found"
            place = place[key]
    return f"unrecognized type {kind}" if isinstance(kind, str) and kind not in _TYPES else None


def anchored_patterns(body: Body) -> str | None:
    for _, function in _tools(body):
        for _, schema in _schemas(function.get("parameters")):
            pattern = schema.get("pattern") if isinstance(schema, Mapping) else None
            if isinstance(pattern, str) and not (pattern.startswith("^") and pattern.endswith("$")):
                return (
                    "Unable to generate parser for this template. Automatic parser generation failed: JSON schema "
                    "conversion failed:\nPattern must start with '^' and end with '$'"
                )
    return None


def plain_roots(body: Body) -> str | None:
    """OpenAI's, of every tool."""
    for _, function in _tools(body):
        schema = function.get("parameters")
        if isinstance(schema, Mapping) and {"oneOf", "anyOf", "allOf", "enum", "not"} & schema.keys():
            return (
                f"Invalid schema for function '{function.get('name')}': schema must have type 'object' and not have "
                "'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
            )
    return None


def strict_schemas(body: Body) -> str | None:
    """OpenAI's, of tools that are declared strict."""
    for _, function in _tools(body):
        if function.get("strict"):
            for path, schema in _schemas(function.get("parameters")):
                if isinstance(schema, Mapping) and (why := _not_strict(schema)):
                    context = "(" + ", ".join(f"'{key}'" for key in path) + ("," if len(path) == 1 else "") + ")"
                    return f"Invalid schema for function '{function.get('name')}': In context={context}, {why}"
    return None


def _not_strict(schema: Mapping[str, Any]) -> str | None:
    kinds = schema.get("type")
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        return None
    if schema.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    properties, required = schema.get("properties"), schema.get("required")
    missing = [key for key in properties or () if key not in (required or ())]
    if missing:
        return (
            "'required' is required to be supplied and to be an array including every key in properties. "
            f"Missing '{missing[0]}'."
        )
    return None


# Gemini.

_UNKNOWN_TO_GEMINI = (
    "$schema",
    "additionalProperties",
    "const",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "multipleOf",
    "propertyNames",
)


def schemas_of_gemini(body: Body) -> str | None:
    """Keywords of which a thread shows the refusal; `parametersJsonSchema` takes them."""
    for index, tool in enumerate(_objects(body.get("tools"))):
        for number, function in enumerate(_objects(tool.get("functionDeclarations"))):
            for path, schema in _schemas(function.get("parameters")):
                unknown = [key for key in _UNKNOWN_TO_GEMINI if isinstance(schema, Mapping) and key in schema]
                if unknown:
                    place = _place(f"tools[{index}].function_declarations[{number}].parameters", path, function)
                    return (
                        f"Invalid JSON payload received. Unknown name \"{unknown[0]}\" at '{place}': Cannot find field."
                    )
    return None


def _place(place: str, path: tuple[str, ...], function: Mapping[str, Any]) -> str:
    """Gemini counts the properties and writes its own names of the keywords."""
    schema: Any = function.get("parameters")
    steps = iter(path)
    for keyword in steps:
        if keyword == "items":
            schema, place = schema["items"], f"{place}.items"
            continue
        name = next(steps)
        inner = schema[keyword]
        if isinstance(inner, list):
            schema, place = inner[int(name)], f"{place}.{keyword.replace('Of', '_of')}[{name}]"
        else:
            schema, place = inner[name], f"{place}.{keyword}[{list(inner).index(name)}].value"
    return place


def signed_calls(body: Body) -> str | None:
    """The first call of each model's turn that answers the newest question carries a signature."""
    contents = _objects(body.get("contents"))
    expected = [index for index, content in enumerate(contents) if _asks(content)]
    for position, content in enumerate(contents):
        if content.get("role") != "model" or position < (expected or [0])[-1]:
            continue
        calls = [part for part in _objects(content.get("parts")) if "functionCall" in part]
        if calls and not (calls[0].get("thoughtSignature") or calls[0].get("thought_signature")):
            return (
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                f"data, function call `default_api:{_name(calls[0])}` , position {position + 1}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )
    return None


def _asks(content: Mapping[str, Any]) -> bool:
    return content.get("role") == "user" and any("text" in part for part in _objects(content.get("parts")))


def _name(part: Mapping[str, Any]) -> str:
    call = part["functionCall"]
    return str(call.get("name")) if isinstance(call, Mapping) else ""


def as_many_responses(body: Body) -> str | None:
    contents = _objects(body.get("contents"))
    for position, content in enumerate(contents):
        if content.get("role") == "model" and (calls := _count(content, "functionCall")):
            following = contents[position + 1] if position + 1 < len(contents) else {}
            if _count(following, "functionResponse") != calls:
                return (
                    "Please ensure that the number of function response parts is equal to the number of function call "
                    "parts of the function call turn."
                )
    return None


def _count(content: Mapping[str, Any], key: str) -> int:
    return sum(key in part for part in _objects(content.get("parts")))
