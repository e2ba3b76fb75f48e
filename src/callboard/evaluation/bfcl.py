"""Read the tasks of the Berkeley Function Calling Leaderboard (BFCL), and the tasks of When2Call.

A category of BFCL is a file of questions (`BFCL_v4_simple_python.json`) and, if calls are expected, a file of accepted
answers (`possible_answer/…` of the same name). Both have one JSON object per line, joined by `id`. Python's names of
types become JSON Schema's: `dict` is an object, `float` a number, `tuple` an array, `any` no type. Dots in a tool's
name become underscores, as in the official handlers, because no provider accepts dots. Descriptions stay unchanged. The
official runner adds "Note that the provided function is in Python 3 syntax." to each.

A task of several turns names the simulated APIs that its calls run on. The tools of these APIs are in
`multi_turn_func_doc`, and `simulation` runs them. The right calls are Python expressions with literal arguments, which are
parsed and never evaluated.

The tasks of When2Call (NVIDIA) ask whether to call a tool at all. Their right answers are a call, a direct answer, a
question for missing facts, and that the task cannot be done. If a call is right, the model has to make at least one, of
any declared tool. Otherwise it may make none; the kind of the text is not judged. The files are in
https://github.com/NVIDIA/When2Call under `data/test` (licence CC BY 4.0), and in no package. Tools have BFCL's format.
Tasks without tools are skipped, because a call is impossible.

Law: files are not trusted. Their size, their lines and the depth of their schemas are limited. A line in another format
is refused, and the error names the file and the line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from callboard.core import AssistantCanister, Canister, SupervisorCanister, UserCanister
from callboard.core.request import ToolDeclaration
from callboard.errors import CallerError
from callboard.evaluation.task import LINE, ExpectedCall, RightCall, Simulation, Step, Task

WHEN2CALL: Final = "when2call"
FILES: Final = ("when2call_test_llm_judge.jsonl", "when2call_test_mcq.jsonl")
"""Files with 300 of the tasks, and with all tasks."""


class _When2CallRow(msgspec.Struct, frozen=True):
    uuid: str
    question: str
    correct_answer: Literal["tool_call", "direct", "request_for_info", "cannot_answer"]
    tools: list[str]


def load_when2call(path: Path) -> list[Task]:
    """Return the tasks of the file `path`, or of the first known file in a directory.

    A task's category is its right answer.

    Raises:
        CallerError: There is no such file, or a line is not in When2Call's format.
    """
    files = [path, *(path / name for name in FILES)]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        hint = "clone https://github.com/NVIDIA/When2Call and give its folder data/test"
        raise CallerError(f"there is no {' and no '.join(FILES)}", path=str(path), hint=hint)
    return [*decode_when2call(read_lines(file), path=file.name)]


def decode_when2call(lines: Iterable[bytes], *, path: str = "") -> Iterator[Task]:
    """Yield the tasks of a file's lines. Raises CallerError with `path` and the line."""
    for number, row in enumerate(decode_lines(_When2CallRow, lines, path), 1):
        location = f"{path}:{number}"
        functions = decode_lines(_Function, map(str.encode, row.tools), location)
        tools = tuple(_tool(function, location) for function in functions)
        step = Step((UserCanister(row.question),), any_call=row.correct_answer == "tool_call")
        if tools:
            yield Task(row.uuid, WHEN2CALL, row.correct_answer, tools, (step,))


SUITE: Final = "bfcl"
CATEGORIES: Final = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
    "live_relevance",
)
"""Categories of one turn. The live categories came from users."""
MULTI_TURN: Final = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
"""Categories of several turns. Their tasks run on simulated APIs."""
DOCUMENTS: Final[Mapping[str, str]] = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""Names of the files that describe the tools of each simulated API, which are also the names of its modules."""
NEW_TOOLS: Final = "I have updated some more functions you can choose from. What about now?"
"""Message of a turn that declares more tools, as in the official runner."""
REFUSED: Final[Mapping[str, str]] = {
    "simple_java": "its values are Java source text, not JSON",
    "simple_javascript": "its values are JavaScript source text, not JSON",
    "memory": "its tasks search texts with models, and depend on each other",
    "web_search": "its tools search the web",
    "format_sensitivity": "it has the tasks of other categories with other prompts",
}
"""Reasons why the other categories are refused, by prefixes of their names."""
_Row = TypeVar("_Row")
_SIZE: Final = 64 * 1024 * 1024
_DEPTH: Final = 32
_TYPES: Final[Mapping[str, str]] = {
    "string": "string",
    "integer": "integer",
    "float": "number",
    "number": "number",
    "boolean": "boolean",
    "array": "array",
    "tuple": "array",
    "dict": "object",
    "object": "object",
    "any": "",
}
_NO_KEYWORDS: Final = frozenset({"optional", "response"})
"""Keywords of BFCL's schemas that JSON Schema does not have."""
_CANISTERS: Final = {"system": SupervisorCanister, "user": UserCanister, "assistant": AssistantCanister}


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str


class _Function(msgspec.Struct, frozen=True):
    name: str
    description: str
    parameters: dict[str, Any]


class _Question(msgspec.Struct, frozen=True):
    id: str
    question: list[list[_Message]]
    function: list[_Function]


class _Answer(msgspec.Struct, frozen=True):
    id: str
    ground_truth: list[dict[str, dict[str, tuple[Any, ...]]]]


class _Conversation(msgspec.Struct, frozen=True):
    id: str
    question: list[list[_Message]]
    involved_classes: list[str]
    initial_config: dict[str, Any] = {}
    missed_function: dict[str, list[str]] = {}


class _RightCalls(msgspec.Struct, frozen=True):
    id: str
    ground_truth: list[list[str]]


def load_bfcl(directory: Path, categories: Sequence[str] = CATEGORIES) -> list[Task]:
    """Return the tasks of the categories, in the order of the files.

    Args:
        directory: BFCL's `data`, with the files of questions and the folder `possible_answer`.
        categories: Names such as `simple_python`.

    Raises:
        CallerError: A category cannot be read, a file is missing, or a line is not in BFCL's format.
    """
    tasks: list[Task] = []
    for category in categories:
        check_category(category)
        questions = _file(directory, category)
        answers = read_lines(_file(directory / "possible_answer", category)) if has_answers(category) else []
        if category in MULTI_TURN:
            tools = {name: _read_tools(directory, document) for name, document in DOCUMENTS.items()}
            tasks += _decode_multi_turn(category, read_lines(questions), answers, tools, questions.name)
        else:
            tasks += decode_bfcl(category, read_lines(questions), answers, path=questions.name)
    return tasks


def check_category(category: str) -> None:
    """Raise CallerError, with the reason, if a category cannot be read."""
    if category in (*CATEGORIES, *MULTI_TURN):
        return
    reason = next((why for begin, why in REFUSED.items() if category.startswith(begin)), "BFCL has no such category")
    raise CallerError(
        f"the category {category} cannot be read: {reason}", hint=f"use {', '.join((*CATEGORIES, *MULTI_TURN))}"
    )


def has_answers(category: str) -> bool:
    """Return whether the category has a file of accepted answers. It has none if only the presence of a call counts."""
    return not category.endswith(("irrelevance", "relevance"))


def decode_bfcl(
    category: str, questions: Iterable[bytes], answers: Iterable[bytes] = (), *, path: str = ""
) -> Iterator[Task]:
    """Yield the tasks of a category's lines. Raises CallerError with `path` and the line."""
    known = {answer.id: answer for answer in decode_lines(_Answer, answers, f"possible_answer/{path}")}
    for number, question in enumerate(decode_lines(_Question, questions, path), 1):
        yield _task(category, question, known.get(question.id), f"{path}:{number}")


def _task(category: str, question: _Question, answer: _Answer | None, path: str) -> Task:
    tools = tuple(_tool(function, path) for function in question.function)
    names = {tool.name for tool in tools}
    calls = answer.ground_truth if answer else ()
    expected = tuple(ExpectedCall(_name(name), arguments) for call in calls for name, arguments in call.items())
    if len(names) < len(tools) or not {call.name for call in expected} <= names:
        raise CallerError("two tools have one name, or an answer's tool is not declared", path=path)
    if len(question.question) != 1 or (has_answers(category) and answer is None):
        raise CallerError("a task of one turn with an accepted answer was looked for", path=path)
    canisters = tuple(_canister(message, path) for message in question.question[0])
    step = Step(canisters, expected, any_call=category.endswith("_relevance"))
    return Task(question.id, SUITE, category, tools, (step,))


def _canister(message: _Message, path: str) -> Canister:
    if message.role not in _CANISTERS:
        raise CallerError(f"a message of the role {message.role!r} cannot be read", path=path)
    canister: Canister = _CANISTERS[message.role](message.content)
    return canister


def _read_tools(directory: Path, document: str) -> list[ToolDeclaration]:
    """Return the tools of a simulated API."""
    file = directory / "multi_turn_func_doc" / f"{document}.json"
    if not file.is_file():
        raise CallerError("a simulated API is not described", path=str(file), hint="give BFCL's whole folder `data`")
    return [_tool(function, file.name) for function in decode_lines(_Function, read_lines(file), file.name)]


def _decode_multi_turn(
    category: str,
    questions: Iterable[bytes],
    answers: Iterable[bytes],
    tools: Mapping[str, Sequence[ToolDeclaration]],
    path: str,
) -> Iterator[Task]:
    """Yield the tasks of a category of several turns."""
    known = {answer.id: answer.ground_truth for answer in decode_lines(_RightCalls, answers, f"possible_answer/{path}")}
    for number, question in enumerate(decode_lines(_Conversation, questions, path), 1):
        location = f"{path}:{number}"
        right_calls = known.get(question.id, ())
        if len(right_calls) != len(question.question) or not tools.keys() >= set(question.involved_classes):
            raise CallerError("a turn has no right calls, or a simulated API is not known", path=location)
        declared = {tool.name: tool for name in question.involved_classes for tool in tools[name]}
        later = {
            turn: tuple([declared.pop(name) for name in names if name in declared])
            for turn, names in question.missed_function.items()
        }
        steps = [
            Step(
                tuple([_canister(message, location) for message in messages])
                or (UserCanister(NEW_TOOLS),) * (str(turn) in later),
                right_calls=tuple([_right_call(call, location) for call in right_calls[turn]]),
                tools=later.get(str(turn), ()),
            )
            for turn, messages in enumerate(question.question)
        ]
        simulation = Simulation(
            tuple(question.involved_classes), question.initial_config, long_context=category.endswith("long_context")
        )
        yield Task(question.id, SUITE, category, tuple(declared.values()), tuple(steps), simulation)


def _right_call(expression: str, path: str) -> RightCall:
    """Parse a call such as `cd(folder='temp')`. Raises CallerError if its arguments are not literals."""
    try:
        match ast.parse(expression.strip(), mode="eval").body:
            case ast.Call(ast.Name(name), positional, keywords):
                values = tuple([ast.literal_eval(each) for each in positional])
                return RightCall(name, values, {str(each.arg): ast.literal_eval(each.value) for each in keywords})
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        pass
    raise CallerError(f"not a call with literal arguments: {expression[:80]!r}", path=path)


def _tool(function: _Function, path: str) -> ToolDeclaration:
    schema = _schema(function.parameters, path)
    return ToolDeclaration(_name(function.name), function.description, {**schema, "type": "object"})


def _name(name: str) -> str:
    return name.replace(".", "_")


def _schema(described: Any, path: str, depth: int = 0) -> dict[str, Any]:
    """Return the JSON Schema of a schema of BFCL."""
    if not isinstance(described, dict) or depth > _DEPTH:
        raise CallerError("a schema is not an object, or too deep", path=path)
    schema = {key: value for key, value in described.items() if key not in _NO_KEYWORDS}
    kind = schema.pop("type", "any")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise CallerError(f"the type {kind!r} is not one of {', '.join(_TYPES)}", path=path)
    if _TYPES[kind]:
        schema = {"type": _TYPES[kind], **schema}
    if isinstance(properties := schema.get("properties"), dict):
        schema["properties"] = {name: _schema(inner, path, depth + 1) for name, inner in properties.items()}
    if "items" in schema:
        schema["items"] = _schema(schema["items"], path, depth + 1)
    return schema


def find_categories(directory: Path) -> list[str]:
    """Return the categories that have a file of questions in the directory."""
    return [category for category in (*CATEGORIES, *MULTI_TURN) if _files(directory, category)]


def _file(directory: Path, category: str) -> Path:
    files = _files(directory, category)
    if not files:
        raise CallerError(f"there is no BFCL_v4_{category}.json", path=str(directory), hint="give BFCL's folder `data`")
    return files[-1]


def _files(directory: Path, category: str) -> list[Path]:
    """Return the category's files, one for each version of BFCL, the newest last."""
    name = re.compile(rf"BFCL_v\d+_{category}\.json")
    files = [file for file in directory.glob("BFCL_v*.json") if name.fullmatch(file.name)]
    return sorted(files, key=lambda file: (len(file.name), file.name))  # version 10 after version 4


def read_lines(file: Path) -> list[bytes]:
    """Return the non-empty lines of a file. Raises CallerError if the file is too large."""
    if file.stat().st_size > _SIZE:
        raise CallerError("the file is too large", path=str(file), hint=f"at most {_SIZE} bytes")
    return [line for line in file.read_bytes().splitlines() if line.strip()]


def decode_lines(shape: type[_Row], lines: Iterable[bytes], path: str) -> Iterator[_Row]:
    """Yield the decoded lines. Raises CallerError with `path` and the line."""
    for number, line in enumerate(lines, 1):
        location = f"{path}:{number}"
        if len(line) > LINE:
            raise CallerError("the line is too long", path=location, hint=f"at most {LINE} bytes")
        try:
            yield msgspec.json.decode(line, type=shape)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise CallerError(f"not as it should be: {error}", path=location) from None
