"""Read the tasks of When2Call (NVIDIA), which ask whether to call a tool at all.

Its four right answers are a call, a direct answer, a question for what is missing, and that it cannot be done. A call
was right: then at least one has to be made, of any declared tool. One of the others was right: then none may be. Which
of the three a text is, When2Call lets another model judge; here it is not judged.

The files are in https://github.com/NVIDIA/When2Call under `data/test` (licence CC BY 4.0), and in no package. Each tool
is a text with JSON as BFCL writes it. Tasks without tools are left out: no call could be made there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from callboard.core import UserCanister
from callboard.errors import CallerError
from callboard.evaluation.bfcl import decode_lines, decode_tool, read_lines
from callboard.evaluation.task import Step, Task

SUITE: Final = "when2call"
FILES: Final = ("when2call_test_llm_judge.jsonl", "when2call_test_mcq.jsonl")
"""300 of the tasks, and all of them."""


class _Row(msgspec.Struct, frozen=True):
    uuid: str
    question: str
    correct_answer: Literal["tool_call", "direct", "request_for_info", "cannot_answer"]
    tools: list[str]


_rows: msgspec.json.Decoder[_Row] = msgspec.json.Decoder(_Row)


def load_when2call(path: Path) -> list[Task]:
    """The tasks of a file, or of the first known one in a directory; a task's category is its right answer.

    Raises:
        CallerError: There is no such file, or a line is not as When2Call's are.
    """
    files = [path, *(path / name for name in FILES)]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        hint = "clone https://github.com/NVIDIA/When2Call and give its folder data/test"
        raise CallerError(f"there is no {' and no '.join(FILES)}", path=str(path), hint=hint)
    return [*decode_when2call(read_lines(file), path=file.name)]


def decode_when2call(lines: Iterable[bytes], *, path: str = "") -> Iterator[Task]:
    """The tasks of a file's lines. Raises CallerError that names `path` and the line."""
    for number, row in enumerate(decode_lines(_rows, lines, path), 1):
        location = f"{path}:{number}"
        tools = tuple(decode_tool(tool, location) for tool in row.tools)
        step = Step((UserCanister(row.question),), any_call=row.correct_answer == "tool_call")
        if tools:
            yield Task(row.uuid, SUITE, row.correct_answer, tools, (step,))
