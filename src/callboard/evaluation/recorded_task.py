"""Make a task of what was recorded: a conversation, or a request with its reply.

The task has one step. What came before the chosen turn of the model stands before it, and the calls of that turn are what
is expected; who knows better edits the line. A conversation on disk does not hold its tools: they are described by the
calls that were made, unless they are given.

Law: the calls that a task was made of solve it, where their tools take them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from callboard.core import (
    AssistantCanister,
    Canister,
    Fold,
    InvocationCanister,
    ToolDeclaration,
    identify_in_turn,
)
from callboard.errors import CallerError
from callboard.evaluation.task import ExpectedCall, Step, Task, encode_task
from callboard.wires import DecodeContext, get_wire

SUITE: Final = "recorded"
MAX_FILE: Final = 32 * 1024 * 1024
"""Bytes of a recorded request."""
_LOOSE: Final = 60
"""Characters of a text that is compared without case and punctuation; a longer one has to come to the letter."""
_REQUEST_KEYS: Final = ("request", "body")
_REPLY_KEYS: Final = ("response", "reply")
_MODEL: Final = (AssistantCanister, InvocationCanister)
_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


class Recording(msgspec.Struct, frozen=True):
    """A conversation and the tools that were declared in it; none where that is not known."""

    canisters: tuple[Canister, ...]
    tools: tuple[ToolDeclaration, ...] = ()


def decode_recording(data: bytes, *, wire: str = "", path: str = "") -> Recording:
    """Read a request's body, alone or beside its reply.

    Args:
        data: JSON: a body of one of our wires, or an object with it under `request` and the reply under `response`.
        wire: The wire; by default the one that the body's keys are those of.
        path: Named in errors.

    Raises:
        CallerError: It is neither, or too large.
    """
    if len(data) > MAX_FILE:
        raise CallerError(f"{len(data)} bytes are too many", path=path, hint=f"at most {MAX_FILE}")
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise CallerError(f"not JSON: {error}", path=path) from None
    if not isinstance(value, dict):
        raise CallerError("not a JSON object", path=path)
    body = next((value[key] for key in _REQUEST_KEYS if isinstance(value.get(key), dict)), value)
    reply = next((value[key] for key in _REPLY_KEYS if isinstance(value.get(key), dict)), None)
    codec = get_wire(wire or _guess_wire(body))
    request = codec.decode_request({"model": "recorded", **body})
    canisters = [*request.canisters]
    if reply is not None:
        fold = Fold()
        context = DecodeContext(identify=identify_in_turn(len(canisters)))
        canisters += [each for event in codec.decode_response(reply, context) for each in fold.feed(event)]
    return Recording(tuple(canisters), request.tools)


def _guess_wire(body: Mapping[str, Any]) -> str:
    if "contents" in body:
        return "gemini"
    if "input" in body:
        return "responses"
    tools = body.get("tools")
    has_schemas = isinstance(tools, list) and any(isinstance(each, dict) and "input_schema" in each for each in tools)
    return "messages" if "system" in body or has_schemas else "chat"


def make_task(
    recording: Recording,
    *,
    expected: Sequence[ExpectedCall] | None = None,
    turn: int | None = None,
    category: str = "recorded",
    identifier: str = "",
) -> Task:
    """Make a task of one turn of the model.

    Args:
        recording: The conversation.
        expected: What is expected in place of the calls that were made; an empty one wants no call.
        turn: Which turn of the model, counted from 1; by default the last one, and where the conversation does not end
            with the model and `expected` is given, the turn that would come next.
        category: The task's category.
        identifier: Its name; by default one of its contents.

    Raises:
        CallerError: There is no such turn, or nothing is expected.
    """
    before, calls, next_turn = _split(recording.canisters, turn, has_expected=expected is not None)
    if expected is None and next_turn:
        raise CallerError("the model has said nothing", hint="give its reply, or --expect")
    targets = tuple(expected) if expected is not None else tuple([expect_call(call) for call in calls])
    task = Task(
        identifier,
        SUITE,
        category,
        _complete_tools(recording, targets),
        (Step(tuple([_without_time(each) for each in before]), targets),),
    )
    name = identifier or f"recorded-{hashlib.sha256(encode_task(task)).hexdigest()[:12]}"
    return msgspec.structs.replace(task, identifier=name)


def expect_call(call: InvocationCanister) -> ExpectedCall:
    """What expects this call again; long texts and whatever is made of parts to the letter. Raises CallerError."""
    if call.arguments is None:
        raise CallerError(f"the arguments of {call.name} are no JSON object", hint="say with --expect what is right")
    verbatim = [name for name, value in call.arguments.items() if not _is_loose(value)]
    return ExpectedCall(call.name, {name: (value,) for name, value in call.arguments.items()}, tuple(verbatim))


def decode_expected(texts: Sequence[str]) -> tuple[ExpectedCall, ...]:
    """Calls as `{"name": ..., "arguments": {...}}`; the word `none` is no call at all. Raises CallerError."""
    if [text.strip() for text in texts] == ["none"]:
        return ()
    calls: list[ExpectedCall] = []
    for text in texts:
        try:
            call = msgspec.json.decode(text, type=_Call)
        except (msgspec.MsgspecError, RecursionError) as error:
            hint = 'write {"name": "weather", "arguments": {"city": "Rome"}}, or none'
            raise CallerError(f"no call: {error}", path="--expect", hint=hint) from None
        calls.append(expect_call(InvocationCanister("", call.name, call.arguments, "")))
    return tuple(calls)


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}


def _is_loose(value: Any) -> bool:
    """Whether BFCL's comparison accepts the value for itself, and a few spellings of it."""
    if isinstance(value, str):
        return 0 < len(value) <= _LOOSE and "\n" not in value
    return isinstance(value, (bool, int))


def _split(
    canisters: Sequence[Canister], turn: int | None, *, has_expected: bool
) -> tuple[list[Canister], list[InvocationCanister], bool]:
    """What came before a turn of the model, its calls, and whether it is yet to come."""
    groups = [(is_model, [*group]) for is_model, group in groupby(canisters, lambda each: isinstance(each, _MODEL))]
    turns = [at for at, (is_model, _) in enumerate(groups) if is_model]
    if turn is None and groups and not groups[-1][0] and has_expected:
        return [*canisters], [], True
    if not turns or (turn is not None and not 1 <= turn <= len(turns)):
        if turn is None:
            return [*canisters], [], True
        raise CallerError(f"there is no turn {turn}", path="--turn", hint=f"the model has {len(turns)}")
    at = turns[-1 if turn is None else turn - 1]
    before = [canister for _, group in groups[:at] for canister in group]
    return before, [each for each in groups[at][1] if isinstance(each, InvocationCanister)], False


def _without_time(canister: Canister) -> Canister:
    return msgspec.structs.replace(canister, timestamp=None) if getattr(canister, "timestamp", None) else canister


def _complete_tools(recording: Recording, expected: Sequence[ExpectedCall]) -> tuple[ToolDeclaration, ...]:
    """The declared tools, and for every other one that was called, or is to be, what its calls tell of it."""
    declared = {tool.name for tool in recording.tools}
    arguments: dict[str, dict[str, Any]] = {}
    for call in recording.canisters:
        if isinstance(call, InvocationCanister) and call.name not in declared:
            arguments.setdefault(call.name, {}).update(call.arguments or {})
    for each in expected:
        if each.name not in declared:
            arguments.setdefault(each.name, {}).update({name: values[0] for name, values in each.arguments.items()})
    return (*recording.tools, *[_describe_tool(name, values) for name, values in arguments.items()])


def _describe_tool(name: str, arguments: Mapping[str, Any]) -> ToolDeclaration:
    properties = {key: {"type": _TYPES[type(value)]} if value is not None else {} for key, value in arguments.items()}
    return ToolDeclaration(name, "", {"type": "object", "properties": properties})
