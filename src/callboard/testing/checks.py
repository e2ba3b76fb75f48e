"""The checks of the strict fakes, which `strict.toml` names. Each check finds parts of a request that a server refuses.

A check is a generator. For each refused part, it yields the values for the refusal's message. No check uses another
check. Tests may send anything, so a check ignores everything that it cannot read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final, TypeAlias

Body: TypeAlias = Mapping[str, Any]
Values: TypeAlias = Iterator[Mapping[str, Any]]
_TYPES: Final = {"object", "array", "string", "number", "integer", "boolean", "null"}
_UNKNOWN_TO_GEMINI: Final = (
    *("$schema", "additionalProperties", "const", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"),
    "propertyNames",
)


def messages(body: Body) -> list[Mapping[str, Any]]:
    return _objects(body.get("messages"))


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _roles(body: Body) -> list[Any]:
    return [message.get("role") for message in messages(body)]


def _arguments(body: Body, empty: Any = None) -> Iterator[Any]:
    """Yield the arguments of past calls. `empty` replaces missing and empty arguments."""
    for _, call in _calls(body):
        if isinstance(function := call.get("function"), Mapping):
            arguments = function.get("arguments")
            yield arguments if empty is None else arguments or empty


def _calls(body: Body) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the calls of past replies, each with the index of its message."""
    for index, message in enumerate(messages(body)):
        if message.get("role") == "assistant":
            for call in _objects(message.get("tool_calls")):
                yield index, call


def _parts(body: Body) -> Iterator[Mapping[str, Any]]:
    for message in messages(body):
        yield from _objects(message.get("content"))


def _functions(body: Body) -> list[Mapping[str, Any]]:
    functions = [item.get("function") for item in _objects(body.get("tools"))]
    return [function for function in functions if isinstance(function, Mapping)]


def _schemas(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a schema and its nested schemas, each with its path."""
    yield path, schema
    if not isinstance(schema, Mapping):
        return
    for keyword in ("properties", "$defs"):
        if isinstance(named := schema.get(keyword), Mapping):
            for name, inner in named.items():
                yield from _schemas(inner, (*path, keyword, str(name)))
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(alternatives := schema.get(keyword), list):
            for index, inner in enumerate(alternatives):
                yield from _schemas(inner, (*path, keyword, str(index)))
    if isinstance(items := schema.get("items"), Mapping):
        yield from _schemas(items, (*path, "items"))


def _forced_choice(body: Body) -> str:
    """Return `required` if a call is forced, `specified` if a named tool is forced, "" otherwise."""
    choice = body.get("tool_choice")
    return "specified" if isinstance(choice, Mapping) else "required" if choice == "required" else ""


def _thinks(body: Body) -> bool:
    """Return whether thinking is on, which is the default of the providers with these checks."""
    thinking = body.get("thinking")
    return not isinstance(thinking, Mapping) or thinking.get("type") != "disabled"


# Messages.


def lacks(
    body: Body, fields: Sequence[str], roles: Sequence[str] = (), roles_but: Sequence[str] = (), null: bool = False
) -> Values:
    """Find messages without any of the fields. With `null`, a field that is null counts as missing."""
    for message in messages(body):
        is_asked = message.get("role") in roles if roles else message.get("role") not in roles_but
        if is_asked and all(message.get(field) is None if null else field not in message for field in fields):
            yield {}


def roles_in_turn(body: Body, roles: Sequence[str], last: bool = False) -> Values:
    """Find two roles one after the other. With `last`, look only at the end."""
    yield from [{} for pair in [*pairwise(_roles(body))][-1 if last else 0 :] if list(pair) == list(roles)]


def prefill_with_thinking(body: Body) -> Values:
    """Find a prefill while thinking is on, which is the default of templates that support it."""
    template = body.get("chat_template_kwargs")
    thinks = not isinstance(template, Mapping) or template.get("enable_thinking", True)
    if thinks and _roles(body)[-1:] == ["assistant"]:
        yield {}


def prefill_without_prefix(body: Body) -> Values:
    if _roles(body)[-1:] == ["assistant"] and not messages(body)[-1].get("prefix"):
        yield {}


def systems(body: Body, after: int = 0, most: int = 0) -> Values:
    """Find more system messages than `most`, from the index `after` on."""
    if _roles(body)[after:].count("system") > most:
        yield {}


def unknown_role(body: Body, known: Sequence[str]) -> Values:
    yield from [{"index": index, "role": role} for index, role in enumerate(_roles(body)) if role not in known]


def no_question(body: Body) -> Values:
    if "user" not in _roles(body):
        yield {}


def roles_do_not_alternate(body: Body) -> Values:
    roles = _roles(body)
    turns = roles[1:] if roles[:1] == ["system"] else roles
    yield from [{} for index, role in enumerate(turns) if (role == "user") != (index % 2 == 0)]


# Parts of messages.


def unknown_part(body: Body, known: Sequence[str]) -> Values:
    yield from [{"kind": part.get("type")} for part in _parts(body) if part.get("type") not in known]


def part(body: Body, kind: str) -> Values:
    yield from [{} for each in _parts(body) if each.get("type") == kind]


def picture_elsewhere(body: Body) -> Values:
    """Find pictures that are not embedded in the message."""
    for each in _parts(body):
        picture = each.get("image_url")
        address = picture.get("url") if isinstance(picture, Mapping) else picture
        if each.get("type") == "image_url" and not str(address).startswith("data:"):
            yield {}


def result_in_parts(body: Body) -> Values:
    for index, message in enumerate(messages(body)):
        if message.get("role") == "tool" and isinstance(message.get("content"), list):
            yield {"index": index}


# Calls and results.


def arguments_are_no_json(body: Body, empty: Any = None) -> Values:
    for arguments in _arguments(body, empty):
        try:
            json.loads(arguments) if isinstance(arguments, str) else None
        except json.JSONDecodeError as error:
            yield {"error": error, "nlohmann": _in_words_of_nlohmann(error)}


def _in_words_of_nlohmann(error: json.JSONDecodeError) -> str:
    if not error.doc:
        why = "attempting to parse an empty input; check that your input string or stream contains the expected JSON"
    elif error.msg.startswith("Unterminated string"):
        end = error.doc[error.pos :]
        why = f"syntax error while parsing value - invalid string: missing closing quote; last read: '{end}'"
    else:
        why = "syntax error while parsing value - unexpected end of input; expected '[', '{', or a literal"
    return f"[json.exception.parse_error.101] parse error at line {error.lineno}, column {len(error.doc) + 1}: {why}"


def arguments_are_no_object(body: Body, empty: Any = None) -> Values:
    for arguments in _arguments(body, empty):
        with suppress(json.JSONDecodeError):
            if not isinstance(json.loads(arguments) if isinstance(arguments, str) else arguments, Mapping):
                yield {}


def result_without_call(body: Body) -> Values:
    expected: set[str] = set()
    for message in messages(body):
        if message.get("role") != "tool":
            expected = {str(call.get("id")) for call in _objects(message.get("tool_calls"))}
        elif str(message.get("tool_call_id")) not in expected:
            yield {}


def call_without_result(body: Body) -> Values:
    """Find calls without a result in the messages directly after their reply."""
    due: list[str] = []
    for message in [*messages(body), {}]:
        if message.get("role") == "tool":
            due = [each for each in due if each != str(message.get("tool_call_id"))]
        elif due:
            yield {"identifiers": ", ".join(due)}
            due = []
        else:
            due = [str(call.get("id")) for call in _objects(message.get("tool_calls"))]


# Reasoning.


def calls_without_reasoning(body: Body, empty: bool) -> Values:
    """Find calls without reasoning. With `empty`, accept empty reasoning."""
    for index, _ in _calls(body) if _thinks(body) else ():
        reasoning = messages(body)[index].get("reasoning_content")
        if reasoning is None or not (reasoning or empty):
            yield {"index": index}


def reasoning(body: Body) -> Values:
    for index, message in enumerate(messages(body)):
        for field in ("reasoning_content", "reasoning"):
            if message.get("role") == "assistant" and field in message:
                yield {"index": index, "field": field}


def forbidden_fields(body: Body) -> Values:
    """Find fields that Mistral refuses according to a thread. The message is JSON."""
    places: list[tuple[list[Any], Any]] = [
        (["body", "messages", index, "assistant", "reasoning_content"], message["reasoning_content"])
        for index, message in enumerate(messages(body))
        if message.get("role") == "assistant" and "reasoning_content" in message
    ]
    if "max_completion_tokens" in body:
        places.append((["body", "max_completion_tokens"], body["max_completion_tokens"]))
    error = {"type": "extra_forbidden", "msg": "Extra inputs are not permitted"}
    if places:
        yield {"detail": json.dumps({"detail": [error | {"loc": place, "input": value} for place, value in places]})}


# Options.


def options(
    body: Body,
    on: Sequence[str] = (),
    off: Sequence[str] = (),
    present: Sequence[str] = (),
    named: Sequence[str] = (),
) -> Values:
    """Find a body with fields that are true (`on`), false (`off`), not null (`present`) and present (`named`)."""
    if (
        all(body.get(field) for field in on)
        and not any(body.get(field) for field in off)
        and all(body.get(field) is not None for field in present)
        and all(field in body for field in named)
    ):
        yield {}


def empty(body: Body, field: str) -> Values:
    if body.get(field) == []:
        yield {}


def unknown_effort(body: Body, known: Sequence[str]) -> Values:
    if (effort := body.get("reasoning_effort")) is not None and effort not in known:
        yield {"effort": effort}


def effort_in_thoughts(body: Body, known: Sequence[str]) -> Values:
    """Find an unknown effort of a request that does not turn thinking off."""
    options = body.get("chat_template_kwargs")
    if not isinstance(options, Mapping) or options.get("enable_thinking") is not False:
        yield from unknown_effort(body, known)


def several_choices(body: Body) -> Values:
    if (count := body.get("n")) not in (None, 1):
        yield {"count": count}


def too_few_tokens(body: Body, least: int) -> Values:
    if isinstance(tokens := body.get("max_output_tokens"), int) and tokens < least:
        yield {"tokens": tokens}


# Tools.


def forced_while_thinking(body: Body) -> Values:
    if _thinks(body) and (forced := _forced_choice(body)):
        yield {"forced": forced}


def choice_without_tools(body: Body) -> Values:
    if body.get("tool_choice") not in (None, "none") and body.get("tools") is None:
        yield {}


def unknown_choice(body: Body, named: bool = False) -> Values:
    """Find a choice that is not a known word. With `named`, only an object can name a tool."""
    choice = body.get("tool_choice")
    is_other = choice is not None and not isinstance(choice, Mapping) if named else isinstance(choice, str)
    if is_other and choice not in ("auto", "none", "required"):
        yield {"choice": choice}


def automatic_choice(body: Body) -> Values:
    if body.get("tool_choice", "auto" if body.get("tools") else None) == "auto":
        yield {}


def forced_without_tools(body: Body, forced: str) -> Values:
    if _forced_choice(body) == forced and not _functions(body):
        yield {}


def choice_of_no_tool(body: Body) -> Values:
    choice = body.get("tool_choice")
    function = choice.get("function") if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if isinstance(choice, Mapping) and name not in [each.get("name") for each in _functions(body)]:
        yield {"name": name}


def no_function(body: Body) -> Values:
    for tool in _objects(body.get("tools")):
        if tool.get("type", "function") != "function":
            yield {"tool": json.dumps(tool), "tools": json.dumps(body["tools"], indent=2)}


def mixed_strictness(body: Body) -> Values:
    """Find tools with mixed strictness. A tool without the field is not strict."""
    if len({bool(function.get("strict")) for function in _functions(body)}) > 1:
        yield {}


def too_many_tools(body: Body, most: int) -> Values:
    if isinstance(tools := body.get("tools"), list) and len(tools) > most:
        yield {"count": len(tools)}


# Schemas of parameters.


def schema_without_grammar(body: Body) -> Values:
    """Find schemas that llama.cpp cannot convert to a grammar."""
    for function in _functions(body):
        whole = function.get("parameters")
        for path, schema in _schemas(whole):
            if why := _not_converted(schema, whole):
                yield {"path": "/".join(("#", *path)), "why": why}


def _not_converted(schema: Any, whole: Any) -> str:
    if not isinstance(schema, Mapping):
        return "schema must be an object" if isinstance(schema, bool) else ""
    reference, kind = schema.get("$ref"), schema.get("type")
    if isinstance(reference, str) and not reference.startswith("#"):
        return f"unsupported $ref {reference}, only references into the same document are supported"
    place = whole
    for key in reference.split("/")[1:] if isinstance(reference, str) else ():
        if not isinstance(place, Mapping) or key not in place:
            return f"cannot resolve $ref {reference}, {key} not found"
        place = place[key]
    return f"unrecognized type {kind}" if isinstance(kind, str) and kind not in _TYPES else ""


def open_pattern(body: Body) -> Values:
    for function in _functions(body):
        for _, schema in _schemas(function.get("parameters")):
            pattern = schema.get("pattern") if isinstance(schema, Mapping) else None
            if isinstance(pattern, str) and not (pattern.startswith("^") and pattern.endswith("$")):
                yield {}


def combined_root(body: Body) -> Values:
    for function in _functions(body):
        schema = function.get("parameters")
        if isinstance(schema, Mapping) and {"oneOf", "anyOf", "allOf", "enum", "not"} & schema.keys():
            yield {"name": function.get("name")}


def loose_schema(body: Body) -> Values:
    """Find schemas of strict tools that OpenAI refuses."""
    for function in _functions(body):
        for path, schema in _schemas(function.get("parameters")) if function.get("strict") else ():
            if isinstance(schema, Mapping) and (why := _not_strict(schema)):
                yield {"name": function.get("name"), "context": path, "why": why}


def _not_strict(schema: Mapping[str, Any]) -> str:
    kinds = schema.get("type")
    if kinds != "object" and not (isinstance(kinds, list) and "object" in kinds):
        return ""
    if schema.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    missing = [key for key in schema.get("properties") or () if key not in (schema.get("required") or ())]
    required = "'required' is required to be supplied and to be an array including every key in properties."
    return f"{required} Missing '{missing[0]}'." if missing else ""


# Gemini.


def unknown_keyword(body: Body) -> Values:
    """Find keywords that Gemini refuses according to a thread. `parametersJsonSchema` accepts them."""
    for index, tool in enumerate(_objects(body.get("tools"))):
        for number, function in enumerate(_objects(tool.get("functionDeclarations"))):
            for path, schema in _schemas(function.get("parameters")):
                for keyword in _UNKNOWN_TO_GEMINI:
                    if isinstance(schema, Mapping) and keyword in schema:
                        place = f"tools[{index}].function_declarations[{number}].parameters"
                        yield {"keyword": keyword, "place": _place(place, path, function)}


def _place(place: str, path: tuple[str, ...], function: Mapping[str, Any]) -> str:
    """Return a path in Gemini's format, with numbers of properties and Gemini's names of keywords."""
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


def unsigned_call(body: Body) -> Values:
    """Find turns of the model, after the newest question, whose first call has no signature."""
    contents = _objects(body.get("contents"))
    questions = [index for index, content in enumerate(contents) if _is_question(content)]
    for position, content in enumerate(contents):
        calls = [each for each in _objects(content.get("parts")) if "functionCall" in each]
        if content.get("role") != "model" or position < (questions or [0])[-1] or not calls:
            continue
        if not (calls[0].get("thoughtSignature") or calls[0].get("thought_signature")):
            call = calls[0]["functionCall"]
            yield {"name": call.get("name") if isinstance(call, Mapping) else "", "position": position + 1}


def _is_question(content: Mapping[str, Any]) -> bool:
    return content.get("role") == "user" and any("text" in each for each in _objects(content.get("parts")))


def fewer_responses(body: Body) -> Values:
    contents = _objects(body.get("contents"))
    for content, following in pairwise([*contents, {}]):
        calls = sum("functionCall" in each for each in _objects(content.get("parts")))
        responses = sum("functionResponse" in each for each in _objects(following.get("parts")))
        if content.get("role") == "model" and calls and calls != responses:
            yield {}


CHECKS: Final[Mapping[str, Callable[..., Values]]] = {
    name: value for name, value in globals().items() if callable(value) and getattr(value, "__module__", "") == __name__
}
"""Checks by name. The table also has helper functions, which `strict.toml` does not name."""
