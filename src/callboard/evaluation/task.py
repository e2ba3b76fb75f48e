"""The values of `callboard eval`: tasks, attempts of a model, and judgements.

A task is a conversation in steps. A step is one reply of the model, with the canisters before the reply and the
expected calls. The step also has the results of these calls, so every model reads the same results. A step without
canisters is the reply to the results of the previous step. The first wrong reply ends the task.

Law: a task is one line of JSON, and decodes to the same task. A file of tasks is not trusted: a line has at most `LINE`
bytes, and nothing in it is run as code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from callboard.core import Canister, InvocationCanister, Note, ToolError, Usage
from callboard.core.events import Ending
from callboard.core.request import ToolDeclaration
from callboard.errors import CallerError

LINE: Final = 4 * 1024 * 1024
"""Maximum bytes of a task."""

Label: TypeAlias = Literal[
    "no_call",
    "wrong_tool",
    "malformed_json",
    "schema_violation",
    "hallucinated_param",
    "missing_required",
    "type_coercion",
    "escaping_error",
    "truncation",
    "parallel_collapse",
    "should_not_have_called",
    "wrong_state",
    "missing_result",
    "too_many_rounds",
]
"""Reason why a step was missed. docs/evaluation.md explains the labels."""


class ExpectedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """An expected call of the tool `name`, with the accepted values of each of its `arguments` in BFCL's format.

    The value "" means that the argument is optional. Each value inside an object is again a list of accepted values.
    Texts are compared as in BFCL, without case, spaces and `,./-_*^`. Arguments in `verbatim` have to match exactly.
    """

    name: str
    arguments: Mapping[str, tuple[Any, ...]] = {}
    verbatim: tuple[str, ...] = ()


class ScriptedResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a tool in a task: a `text`, and an `error` if the call fails."""

    text: str
    error: ToolError | None = None


class RightCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the right calls of a turn of BFCL: its `name`, `positional` arguments, and `arguments` by name."""

    name: str
    positional: tuple[Any, ...] = ()
    arguments: Mapping[str, Any] = {}


class Simulation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The simulated APIs of a task: BFCL's `classes`, and the state that each begins in.

    With `long_context`, results have tens of thousands of tokens.
    """

    classes: tuple[str, ...]
    state: Mapping[str, Any] = {}
    long_context: bool = False


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reply of the model.

    `canisters` come before the reply. `expected` has the calls of the reply, in any order unless `ordered`. If it is
    empty, the reply must not have a call. With `any_call`, at least one call of any declared tool is right, and
    `expected` is empty. `results` are the results of each tool's calls, one after another; the last result repeats.
    The text of the reply must contain one spelling of each entry of `answer`, as whole words without case.

    In a task with a simulation, a step is a turn: the model calls until it answers in words. `right_calls` lead to the
    right state and results. `tools` are declared from this step on.
    """

    canisters: tuple[Canister, ...] = ()
    expected: tuple[ExpectedCall, ...] = ()
    ordered: bool = False
    any_call: bool = False
    results: Mapping[str, tuple[ScriptedResult, ...]] = {}
    answer: tuple[tuple[str, ...], ...] = ()
    right_calls: tuple[RightCall, ...] = ()
    tools: tuple[ToolDeclaration, ...] = ()


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """The `steps` of one task with the same `tools`, named by its `identifier` in a `category`.

    `suite` is the source (`bfcl`, `when2call`, `callboard`, or a file's name). With a `simulation`, calls run on
    simulated APIs.
    """

    identifier: str
    suite: str
    category: str
    tools: tuple[ToolDeclaration, ...]
    steps: tuple[Step, ...]
    simulation: Simulation | None = None


class Judgement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a step is `solved`, and if not, the `label` and the reason `why`.

    The label is "" if the step is solved, or if the reply failed.
    """

    solved: bool
    label: Label | Literal[""] = ""
    why: str = ""


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model's reply at a step: its `calls` from `Fold`, `text`, `ending`, `notes`, `usage` and `seconds`.

    A call whose arguments are not a JSON object has the arguments None. `failure` is the message of a failed reply.
    Such a step is missed, but does not count against the model.
    """

    calls: tuple[InvocationCanister, ...] = ()
    text: str = ""
    ending: Ending = "stop"
    notes: tuple[Note, ...] = ()
    seconds: float = 0.0
    usage: Usage = Usage()
    failure: str = ""
    scores: Mapping[str, float] = {}
    """Scores of the calls from a gate, by the calls' identifiers."""
    judgement: Judgement | None = None
    """Judgement of BFCL's own checker, if the task has a simulation."""


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Task] = msgspec.json.Decoder(Task)


def encode_task(task: Task) -> bytes:
    """Return the `task` as one line, without the line break."""
    return _encoder.encode(task)


def decode_task(line: bytes | str, *, path: str = "") -> Task:
    """Return the task of a `line`. Raises CallerError with `path` if the line is not a task."""
    if len(line) > LINE:
        raise CallerError(f"a task of {len(line)} bytes is too long", path=path, hint=f"at most {LINE}")
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise CallerError(f"not a task: {error}", path=path) from None


def decode_tasks(lines: Iterable[bytes | str], *, path: str = "") -> Iterator[Task]:
    """Yield the tasks of the `lines` of the file `path`. Skip empty lines.

    Raises CallerError with the file and the line.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield decode_task(line, path=f"{path}:{number}")
