"""The report of a run: a table for people, and values for programs.

Laws: every task of a variant is counted once, as solved, missed under a label, or failed. A failure of the endpoint
counts neither for nor against the model. Texts of models and tasks are shown without control characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_args

import msgspec

from callboard.core import (
    AssistantCanister,
    Canister,
    DocumentCanister,
    InvocationCanister,
    ResultCanister,
    SupervisorCanister,
    TextualContent,
    UserCanister,
)
from callboard.evaluation.check import check_step
from callboard.evaluation.runner import TaskOutcome
from callboard.evaluation.statistics import Choice, Interval, Score, choose_best, percentile
from callboard.evaluation.task import Attempt, Label, Step, Task
from callboard.evaluation.variants import Variant, describe_facts
from callboard.text.display import collapse, escape, strip_controls
from callboard.text.truncate import truncate

LABELS: Final[tuple[Label, ...]] = get_args(Label)
MAX_TEXT: Final = 4000
"""Maximum characters of one text of a conversation."""
_LINES: Final = 15
"""Maximum misses, and maximum failures, below the table."""
_WHY: Final = 110
_ROLES: Final[Mapping[type[Canister], str]] = {
    SupervisorCanister: "instructions",
    UserCanister: "user",
    DocumentCanister: "document",
    AssistantCanister: "model",
    InvocationCanister: "call",
    ResultCanister: "result",
}


class Line(msgspec.Struct, frozen=True):
    """A line of a conversation. `role` is its speaker, or "expected" for the right reply."""

    role: str
    text: str


class Miss(msgspec.Struct, frozen=True):
    """A task that was not solved, with its label and its conversation up to the missed step."""

    variant: str
    suite: str
    category: str
    task: str
    label: str
    why: str
    conversation: tuple[Line, ...]


class Unanswered(msgspec.Struct, frozen=True):
    """A task that the endpoint did not answer."""

    variant: str
    task: str
    why: str


class CategoryScore(msgspec.Struct, frozen=True):
    """The score of one category."""

    suite: str
    category: str
    solved: int
    total: int
    interval: Interval


class VariantScore(msgspec.Struct, frozen=True):
    """The score of one variant."""

    name: str
    facts: Mapping[str, object]
    solved: int
    total: int
    share: float
    interval: Interval
    categories: tuple[CategoryScore, ...]
    labels: Mapping[str, int]
    """Number of missed tasks by label, without labels that do not occur."""
    failures: int
    seconds_per_solved: float | None
    tokens_per_solved: float | None
    seconds_per_task: float
    median_seconds: float
    slow_seconds: float
    """Seconds within which nine of ten tasks end."""
    fits_threshold: bool = False
    """True if a threshold was fitted on these tasks, so that the share is the best of many thresholds."""


class Report(msgspec.Struct, frozen=True):
    """A whole run."""

    model: str
    tasks: tuple[str, ...]
    """Identifiers of the tasks that were planned for each variant."""
    variants: tuple[VariantScore, ...]
    misses: tuple[Miss, ...]
    failures: tuple[Unanswered, ...]
    choice: Choice | None = None
    """The best variant, None if nothing was compared."""

    @property
    def planned(self) -> int:
        """Number of tasks that were planned for each variant."""
        return len(self.tasks)


class _Results:
    """The counts of one variant."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.solved: dict[str, bool] = {}
        self.categories: dict[tuple[str, str], list[bool]] = {}
        self.labels: Counter[str] = Counter()
        self.misses: list[Miss] = []
        self.failures: list[Unanswered] = []
        self.seconds: list[float] = []
        self.tokens = 0

    def add(self, outcome: TaskOutcome) -> None:
        task, record, name = outcome.task, outcome.record, self.variant.name
        if record.failure:
            self.failures.append(Unanswered(name, task.identifier, record.failure))
            return
        miss = _find_miss(name, task, record.attempts)
        self.solved[f"{task.suite}/{task.category}/{task.identifier}"] = miss is None
        self.categories.setdefault((task.suite, task.category), []).append(miss is None)
        self.seconds.append(record.seconds)
        self.tokens += record.tokens
        if miss is not None:
            self.labels[miss.label] += 1
            self.misses.append(miss)

    @property
    def score(self) -> Score:
        return Score(self.solved, sum(self.seconds), self.tokens)

    def summarize(self) -> VariantScore:
        score = self.score
        return VariantScore(
            self.variant.name,
            self.variant.facts,
            score.count,
            score.total,
            score.share,
            score.interval,
            tuple([_score_category(*name, solved) for name, solved in self.categories.items()]),
            {label: self.labels[label] for label in LABELS if self.labels[label]},
            len(self.failures),
            score.seconds_per_solved,
            score.tokens_per_solved,
            score.seconds_per_task,
            percentile(self.seconds, 0.5),
            percentile(self.seconds, 0.9),
            self.variant.fits_threshold,
        )


def make_report(model: str, tasks: Sequence[Task], outcomes: Iterable[TaskOutcome]) -> Report:
    """Make the report of a run.

    Args:
        model: The model's name.
        tasks: The tasks that were planned for each variant.
        outcomes: The outcomes, which may be incomplete.
    """
    results: dict[str, _Results] = {}
    order = {(task.suite, task.category, task.identifier): at for at, task in enumerate(tasks)}

    def find_position(outcome: TaskOutcome) -> int:
        return order.get((outcome.task.suite, outcome.task.category, outcome.task.identifier), len(order))

    # Cached outcomes come first, and concurrent tasks end in any order. Sort, so that the report does not depend on it.
    for outcome in sorted(outcomes, key=find_position):
        name = outcome.variant.name
        results.setdefault(name, _Results(outcome.variant)).add(outcome)
    return Report(
        model,
        tuple([task.identifier for task in tasks]),
        tuple([each.summarize() for each in results.values()]),
        tuple([miss for each in results.values() for miss in each.misses]),
        tuple([failure for each in results.values() for failure in each.failures]),
        _choose(results, len(tasks)),
    )


def _choose(results: Mapping[str, _Results], planned: int) -> Choice | None:
    """Return the choice among the variants that have answered every task."""
    complete = {name: each.score for name, each in results.items() if len(each.solved) == planned}
    return choose_best(complete) if len(complete) > 1 else None


def _score_category(suite: str, category: str, solved: Sequence[bool]) -> CategoryScore:
    score = Score({str(at): each for at, each in enumerate(solved)})
    return CategoryScore(suite, category, score.count, score.total, score.interval)


def _find_miss(variant: str, task: Task, attempts: Sequence[Attempt]) -> Miss | None:
    conversation: list[Line] = []
    for step, attempt in zip(task.steps, attempts, strict=False):
        conversation += _lines(step.canisters)
        judgement = check_step(task, step, attempt)
        conversation += _attempt_lines(attempt)
        if not judgement.solved:
            conversation += _expected_lines(step)
            return Miss(
                variant,
                task.suite,
                task.category,
                task.identifier,
                judgement.label,
                strip_controls(judgement.why),
                tuple(conversation),
            )
        conversation += [Line("result", _cut(each.text)) for results in step.results.values() for each in results]
    return None


def _lines(canisters: Iterable[Canister]) -> list[Line]:
    return [Line(_ROLES[type(canister)], _text_of(canister)) for canister in canisters]


def _text_of(canister: Canister) -> str:
    if isinstance(canister, InvocationCanister):
        return _cut(f"{canister.name}({canister.raw})")
    return _cut("\n".join([part.text for part in canister.content if isinstance(part, TextualContent)]))


def _attempt_lines(attempt: Attempt) -> list[Line]:
    text = [Line("model", _cut(attempt.text))] if attempt.text.strip() or not attempt.calls else []
    return [*text, *_lines(attempt.calls)]


def _expected_lines(step: Step) -> list[Line]:
    if step.any_call:
        return [Line("expected", "a call of any tool")]
    calls = [
        Line("expected", _cut(f"{each.name}({msgspec.json.encode(each.arguments).decode()})")) for each in step.expected
    ]
    answers = [Line("expected", _cut(f"an answer that says {' or '.join(each)}")) for each in step.answer]
    return [*calls, *answers] or [Line("expected", "an answer without a call")]


def _cut(text: str) -> str:
    return truncate(strip_controls(text), MAX_TEXT)


# The table.


def format_report(report: Report) -> str:
    """Return the report as text for a terminal."""
    if not report.variants:
        return "nothing was answered"
    blocks = [
        _format_table(_variant_rows(report)),
        _format_table(_category_rows(report)),
        *([_format_table(_label_rows(report))] if report.misses else []),
        *_format_misses(report),
        *_format_failures(report),
        *([f"best: {report.choice.name}, by {report.choice.reason}"] if report.choice else []),
    ]
    return escape("\n\n".join(blocks), keep="\n")


def _variant_rows(report: Report) -> list[list[str]]:
    head = ["", report.model, "SOLVED", "SHARE", "95 %", "S/TASK", "S/SOLVED", "TOKENS/SOLVED", "FAILED"]
    return [head] + [
        [
            letter,
            each.name,
            f"{each.solved} of {each.total}"
            + (f" ({report.planned} planned)" if each.total + each.failures < report.planned else ""),
            f"{each.share * 100:.0f} %",
            format_interval(each.interval),
            f"{each.seconds_per_task:.1f}",
            format_figure(each.seconds_per_solved, 1),
            format_figure(each.tokens_per_solved, 0),
            str(each.failures or ""),
        ]
        for letter, each in zip(_letters(report), report.variants, strict=True)
    ]


def _category_rows(report: Report) -> list[list[str]]:
    names = dict.fromkeys((each.suite, each.category) for variant in report.variants for each in variant.categories)
    scores = [{(each.suite, each.category): each for each in variant.categories} for variant in report.variants]
    return [
        ["CATEGORY", *_letters(report)],
        *(
            [f"{suite} {category}", *[_format_category(each.get((suite, category))) for each in scores]]
            for suite, category in names
        ),
    ]


def _format_category(score: CategoryScore | None) -> str:
    return "" if score is None else f"{score.solved}/{score.total} ({format_interval(score.interval)})"


def _label_rows(report: Report) -> list[list[str]]:
    labels = [label for label in LABELS if any(label in each.labels for each in report.variants)]
    return [
        ["MISSED", *_letters(report)],
        *([label, *[str(each.labels.get(label, "")) for each in report.variants]] for label in labels),
    ]


def _format_misses(report: Report) -> list[str]:
    if not report.misses:
        return []
    letters = dict(zip([each.name for each in report.variants], _letters(report), strict=True))
    lines = [
        f"{letters[each.variant]} {each.task}: {each.label}: {collapse(each.why, _WHY)}"
        for each in report.misses[:_LINES]
    ]
    more = len(report.misses) - _LINES
    hint = [f"and {more} more misses; --report FILE.html shows each with its conversation"] if more > 0 else []
    return ["\n".join([*lines, *hint])]


def _format_failures(report: Report) -> list[str]:
    if not report.failures:
        return []
    lines = [f"{each.task} ({each.variant}): {collapse(each.why, _WHY)}" for each in report.failures[:_LINES]]
    more = len(report.failures) - _LINES
    return ["\n".join(["not answered, and not counted:", *lines, *([f"and {more} more"] if more > 0 else [])])]


def _letters(report: Report) -> list[str]:
    return [chr(ord("A") + at) if at < 26 else f"V{at}" for at in range(len(report.variants))]  # the alphabet


def format_interval(interval: Interval) -> str:
    """Return the interval in percent, such as `80-97 %`."""
    return f"{interval.low * 100:.0f}-{interval.high * 100:.0f} %"


def format_figure(value: float | None, digits: int) -> str:
    """Return a figure, or a dash for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def _format_table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        ["  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]).rstrip() for row in rows]
    )


def describe_variant(score: VariantScore) -> str:
    """Return the facts of the variant, or a text for a variant without facts."""
    return describe_facts(score.facts) or "Callboard's default"
