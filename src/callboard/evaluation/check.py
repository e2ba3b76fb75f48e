"""Judge what a model did at a step: solved, or missed under one of eleven labels.

The order of the questions is the diagnosis: was a call wanted at all, was the reply cut, is there a call, can its
arguments be read, are there as many as were wanted, is each the right one; then, does the text say what it should.

Law: the judgement follows from the step and the attempt alone. Yes and no are those of BFCL's official checker; what
is stricter here is said in docs/evaluation.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from callboard.core import InvocationCanister
from callboard.core.request import ToolDeclaration
from callboard.evaluation.match_call import Mismatch, explain_malformed, match_call
from callboard.evaluation.task import Attempt, ExpectedCall, Judgement, Label, Step, Task
from callboard.text.display import display

_SOLVED: Final = Judgement(True)
_THOUSANDS: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_LENGTH: Final = 120
"""Characters of a model's text that are repeated in a reason."""
_NEAREST: Final[tuple[Label, ...]] = ("malformed_json", "wrong_tool")
"""Labels of calls that are farther from what was wanted than those with any other, the farthest first."""


def check_step(task: Task, step: Step, attempt: Attempt) -> Judgement:
    """Whether the attempt solves the step of the task; if not, why."""
    if attempt.failure:
        return Judgement(False, "", f"the reply failed: {attempt.failure}")
    wrong = _compare(task.tools, step, attempt.calls) or _compare_answer(step, attempt.text)
    if wrong is None:
        return _SOLVED
    if attempt.ending == "length" and wrong.label != "should_not_have_called":
        return Judgement(False, "truncation", f"the reply was cut at its greatest length; {wrong.why}")
    return Judgement(False, wrong.label, wrong.why)


def _compare(tools: Sequence[ToolDeclaration], step: Step, calls: Sequence[InvocationCanister]) -> Mismatch | None:
    """The first thing that is wrong with the calls."""
    least = 1 if step.any_call else len(step.expected)
    if least and not calls:
        return Mismatch("no_call", "a call was to be made, and none was")
    if calls and not least:
        names = ", ".join(display(call.name, _LENGTH) for call in calls[:3])
        return Mismatch("should_not_have_called", f"no call was to be made, and {names} was called")
    for call in calls:
        if call.arguments is None:
            return explain_malformed(call)
    if len(calls) < least:
        return Mismatch("parallel_collapse", f"{least} calls were to be made at once, and {len(calls)} were")
    if step.any_call:
        return None
    if len(calls) > least:
        return Mismatch("should_not_have_called", f"{least} calls were to be made, and {len(calls)} were")
    return _pair(tools, step, list(calls))


def _pair(tools: Sequence[ToolDeclaration], step: Step, calls: list[InvocationCanister]) -> Mismatch | None:
    """Give each expected call the first of the others that is right, or say what is wrong with the nearest one."""
    for expected in step.expected:
        tool = _declaration(tools, expected)
        candidates = calls[:1] if step.ordered else calls
        mismatches = [match_call(call, expected, tool) for call in candidates]
        wrong = [mismatch for mismatch in mismatches if mismatch is not None]
        if len(wrong) == len(candidates):
            return max(wrong, key=_nearness)
        del calls[mismatches.index(None)]
    return None


def _nearness(mismatch: Mismatch) -> int:
    return _NEAREST.index(mismatch.label) if mismatch.label in _NEAREST else len(_NEAREST)


def _declaration(tools: Sequence[ToolDeclaration], expected: ExpectedCall) -> ToolDeclaration:
    return next((tool for tool in tools if tool.name == expected.name), ToolDeclaration(expected.name))


def _compare_answer(step: Step, text: str) -> Mismatch | None:
    """The first thing that the text does not say."""
    folded = _THOUSANDS.sub("", text).casefold()
    for spellings in step.answer:
        if not any(_pattern(spelling).search(folded) for spelling in spellings):
            why = f"the answer does not say {' or '.join(spellings)}: {display(text, _LENGTH)}"
            return Mismatch("schema_violation", why)
    return None


@lru_cache(maxsize=256)
def _pattern(spelling: str) -> re.Pattern[str]:
    """The spelling as whole words: 4 stands neither in 14 nor in 4.5."""
    plain = re.escape(_THOUSANDS.sub("", spelling).casefold())
    return re.compile(rf"(?<![a-z0-9])(?<!\d[.,]){plain}(?![a-z0-9])(?![.,]\d)")
