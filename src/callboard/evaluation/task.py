"""What a model is asked to do with tools, what it did, and whether that was right: the values of `callboard eval`.

A task is a conversation in steps. A step is one reply of the model: what is said to the model before it, and the calls
that it has to hold. The results of these calls are written in the step, so that every model reads the same; a step
without canisters is the reply to the results of the step before. The first reply that is wrong ends the task.

Law: a task is one line of JSON, and the line gives the same task again. A file of tasks is hostile: a line has at most
LINE bytes, and nothing in it is run.
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
"""Bytes of a task."""

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
]
"""Why a step was missed: docs/evaluation.md says what each means."""


class ExpectedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that a step asks for: for each argument, the values that are accepted, as BFCL writes them.

    "" among the values says that the argument may be left out. Inside an object each value is a list of those
    accepted again. Texts are compared without case, spaces and `,./-_*^`, as BFCL does; those of the arguments in
    `verbatim` to the letter.
    """

    name: str
    arguments: Mapping[str, tuple[Any, ...]] = {}
    verbatim: tuple[str, ...] = ()


class ScriptedResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool gives back in a task: a text, which with `error` says what went wrong."""

    text: str
    error: ToolError | None = None


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reply of the model.

    `canisters` come before it. `expected` are the calls of the reply, in any order unless `ordered`; empty, no call
    may be made. With `any_call` at least one call of any declared tool is right, and `expected` is empty. `results`
    are given to the calls of each tool in turn, the last one again where there are more calls. `answer` is what the
    reply's text has to say: of each entry, one of the spellings, as whole words without case.
    """

    canisters: tuple[Canister, ...] = ()
    expected: tuple[ExpectedCall, ...] = ()
    ordered: bool = False
    any_call: bool = False
    results: Mapping[str, tuple[ScriptedResult, ...]] = {}
    answer: tuple[tuple[str, ...], ...] = ()


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """Steps with the same tools. `suite` is where it came from (`bfcl`, `when2call`, `callboard`, or a file's name)."""

    identifier: str
    suite: str
    category: str
    tools: tuple[ToolDeclaration, ...]
    steps: tuple[Step, ...]


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model did at a step: its calls as `Fold` gives them, its text, how the reply ended, and what it cost.

    A call whose arguments are no JSON object has the arguments None. `failure` is the message of a reply that failed;
    such a step is missed, but says nothing about the model.
    """

    calls: tuple[InvocationCanister, ...] = ()
    text: str = ""
    ending: Ending = "stop"
    notes: tuple[Note, ...] = ()
    seconds: float = 0.0
    usage: Usage = Usage()
    failure: str = ""
    scores: Mapping[str, float] = {}
    """What a gate gave the calls, by their identifiers."""


class Judgement(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether a step is solved; if not, under which label it was missed, and why, in a sentence.

    The label is "" where the step is solved, and where the reply itself failed.
    """

    solved: bool
    label: Label | Literal[""] = ""
    why: str = ""


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Task] = msgspec.json.Decoder(Task)


def encode_task(task: Task) -> bytes:
    """The task as one line, without the line break."""
    return _encoder.encode(task)


def decode_task(line: bytes | str, *, path: str = "") -> Task:
    """The task of a line. Raises CallerError that names `path` where it is none."""
    if len(line) > LINE:
        raise CallerError(f"a task of {len(line)} bytes is too long", path=path, hint=f"at most {LINE}")
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise CallerError(f"not a task: {error}", path=path) from None


def decode_tasks(lines: Iterable[bytes | str], *, path: str = "") -> Iterator[Task]:
    """The tasks of a file, line by line; empty lines are skipped. Raises CallerError that names file and line."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield decode_task(line, path=f"{path}:{number}")
