"""Make a task from a recorded conversation, or from a recorded request with its reply.

The task has one step. Its conversation ends before the chosen turn of the model, and the calls of that turn are
expected. You can edit the line afterwards. A conversation on disk has no tools. Tools that you do not declare are
described from their calls.

Law: the recorded calls solve the task, if their tools accept them.
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
"""Maximum bytes of a recorded request."""
_LOOSE: Final = 60
"""Maximum characters of a text that is compared without case and punctuation. A longer text has to match exactly."""
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
    """A conversation and its declared tools, which are empty if they are not known."""

    canisters: tuple[Canister, ...]
    tools: tuple[ToolDeclaration, ...] = ()


def decode_recording(data: bytes, *, wire: str = "", path: str = "") -> Recording:
    """Read the body of a request, alone or with its reply.

    Args:
        data: JSON: a body of one of our wires, or an object with the body in `request` and the reply in `response`.
        wire: The wire. By default it is guessed from the keys of the body.
        path: Path for errors.

    Raises:
        CallerError: The data is in another format, or too large.
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
        expected: The expected calls instead of the recorded calls. An empty sequence expects no call.
        turn: The number of the model's turn, from 1. The default is the last turn, or the next turn if the conversation
            does not end with the model and `expected` is set.
        category: The task's category.
        identifier: The task's name. The default is a digest of the task.

    Raises:
        CallerError: There is no such turn, or no reply and no `expected`.
    """
    before, calls = _split(recording.canisters, turn, has_expected=expected is not None)
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


def find_calls(canisters: Sequence[Canister]) -> list[InvocationCanister]:
    """Return the calls of the model's last turn. Raises CallerError if there is no turn."""
    return _split(canisters, None, has_expected=False)[1]


def expect_call(call: InvocationCanister) -> ExpectedCall:
    """Return the expectation of this call. Long texts and composite values must match exactly. Raises CallerError."""
    if call.arguments is None:
        raise CallerError(f"the arguments of {call.name} are not a JSON object", hint="set the call with --expect")
    verbatim = [name for name, value in call.arguments.items() if not _is_loose(value)]
    return ExpectedCall(call.name, {name: (value,) for name, value in call.arguments.items()}, tuple(verbatim))


def decode_expected(texts: Sequence[str]) -> tuple[ExpectedCall, ...]:
    """Read calls such as `{"name": ..., "arguments": {...}}`. The word `none` expects no call. Raises CallerError."""
    if [text.strip() for text in texts] == ["none"]:
        return ()
    calls: list[ExpectedCall] = []
    for text in texts:
        try:
            call = msgspec.json.decode(text, type=_Call)
        except (msgspec.MsgspecError, RecursionError) as error:
            hint = 'write {"name": "weather", "arguments": {"city": "Rome"}}, or none'
            raise CallerError(f"not a call: {error}", path="--expect", hint=hint) from None
        calls.append(expect_call(InvocationCanister("", call.name, call.arguments, "")))
    return tuple(calls)


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] = {}


def _is_loose(value: Any) -> bool:
    """Return whether BFCL's comparison fits the value: it accepts the value and a few spellings of it."""
    if isinstance(value, str):
        return 0 < len(value) <= _LOOSE and "\n" not in value
    return isinstance(value, (bool, int))


def _split(
    canisters: Sequence[Canister], turn: int | None, *, has_expected: bool
) -> tuple[list[Canister], list[InvocationCanister]]:
    """Return the conversation before a turn of the model, and the turn's calls. Raises CallerError."""
    groups = [(is_model, [*group]) for is_model, group in groupby(canisters, lambda each: isinstance(each, _MODEL))]
    turns = [at for at, (is_model, _) in enumerate(groups) if is_model]
    if turn is None and has_expected and not (groups and groups[-1][0]):  # the turn is still to come
        return [*canisters], []
    if turn is None and not turns:
        raise CallerError("the model has said nothing", hint="give its reply, or --expect")
    if turn is not None and not 1 <= turn <= len(turns):
        raise CallerError(f"there is no turn {turn}", path="--turn", hint=f"the model has {len(turns)}")
    at = turns[-1 if turn is None else turn - 1]
    before = [canister for _, group in groups[:at] for canister in group]
    return before, [each for each in groups[at][1] if isinstance(each, InvocationCanister)]


def _without_time(canister: Canister) -> Canister:
    return msgspec.structs.replace(canister, timestamp=None) if getattr(canister, "timestamp", None) else canister


def _complete_tools(recording: Recording, expected: Sequence[ExpectedCall]) -> tuple[ToolDeclaration, ...]:
    """Return the declared tools, and tools that are described from their recorded or expected calls."""
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
