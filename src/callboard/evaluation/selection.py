"""Read which tasks a person wants: categories, numbers of them, and a number in all that is shared out.

Laws: as many tasks are selected as were asked for, unless there are fewer; the numbers of categories without one of
their own differ by no more than what is available makes necessary. Which tasks these are, `sample` decides.

Choose some of many tasks: the same ones on every machine, and never one that is excluded.

Laws: the choice follows from the identifiers and the seed, not from the order of the tasks; the choice of more tasks by
the same seed holds that of fewer; two choices share no task where the second excludes the identifiers of the first.
So what was chosen by one sample can be measured on another.

Why a hash and not `random`: Python does not promise that its shuffles stay the same from version to version.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from callboard.errors import CallerError
from callboard.evaluation.task import Task
from callboard.text.display import display


def sample(tasks: Iterable[Task], counts: Mapping[str, int], seed: int, *, exclude: Collection[str] = ()) -> list[Task]:
    """So many tasks of each category, in the order of the categories in `counts`.

    Args:
        tasks: What to choose from.
        counts: How many of each category, such as `{"simple_python": 24, "irrelevance": 12}`.
        seed: Another seed chooses other tasks.
        exclude: Identifiers of tasks that are not chosen, such as those of another sample.

    Raises:
        CallerError: A category has fewer tasks.
    """
    choices: defaultdict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        if task.identifier not in exclude:
            choices[task.category].append(task)
    chosen: list[Task] = []
    for category, count in counts.items():
        ranked = sorted(choices[category], key=lambda task: _rank(task, seed))
        if len(ranked) < count:
            raise CallerError(
                f"{count} tasks of {category} were asked for, and there are {len(ranked)}",
                hint=f"the categories are {', '.join(sorted(filter(choices.get, choices))) or 'none'}",
            )
        chosen += ranked[:count]
    return chosen


def _rank(task: Task, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\n{task.suite}\n{task.identifier}".encode()).digest()


_DIGITS: Final = 6
"""Digits of a number of tasks."""


def read_categories(texts: Sequence[str]) -> dict[str, int | None]:
    """Categories as a person writes them: `NAME`, or `NAME:COUNT`, several with commas; None takes what is shared out.

    Raises CallerError.
    """
    categories: dict[str, int | None] = {}
    for word in [each.strip() for text in texts for each in text.split(",") if each.strip()]:
        name, colon, count = word.partition(":")
        if colon and not (count.isdecimal() and len(count) <= _DIGITS):
            raise CallerError(f"{count!r} is no number of tasks", path="--categories", hint="write NAME or NAME:COUNT")
        categories[name] = int(count) if colon else None
    return categories


def select_tasks(
    tasks: Sequence[Task],
    *,
    categories: Mapping[str, int | None] | None = None,
    count: int | None = None,
    seed: int = 0,
    exclude: Collection[str] = (),
) -> list[Task]:
    """Select tasks.

    Args:
        tasks: Those there are.
        categories: The categories that are taken, with the number of each where it is set. By default all.
        count: How many are taken in all, shared out evenly among the categories that set no number. By default all.
        seed: Another one gives other tasks.
        exclude: Identifiers of tasks that are not taken.

    Returns:
        The selected tasks, category by category, in the order of the seed.

    Raises:
        CallerError: There is no such category, or one has fewer tasks than it is to give, or nothing remains, or two
            tasks have one name, whose outcomes could not be told apart.
    """
    _refuse_duplicates(tasks)
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(task.category, []).append(task)
    for name in categories or {}:
        if name not in groups:
            hint = f"there are {', '.join(groups)}"
            raise CallerError(f"no task of the category {name!r}", path="--categories", hint=hint)
    names = [*(categories or groups)]
    available = {name: sum(task.identifier not in exclude for task in groups[name]) for name in names}
    fixed = {name: number for name, number in (categories or {}).items() if number is not None}
    shared = {name: number for name, number in available.items() if name not in fixed}
    numbers = fixed | (shared if count is None else _share_out(max(0, count - sum(fixed.values())), shared))
    selected = sample(tasks, {name: numbers[name] for name in names}, seed, exclude=exclude)
    if not selected:
        raise CallerError("no task remains", hint="take more categories or a larger number, or exclude fewer tasks")
    return selected


def _refuse_duplicates(tasks: Sequence[Task]) -> None:
    """Raises CallerError where the outcomes of two tasks could not be told apart."""
    known: set[tuple[str, str, str]] = set()
    for task in tasks:
        name = task.suite, task.category, task.identifier
        if name in known:
            raise CallerError("two tasks have this name", path=display("/".join(name)), hint="give each its own")
        known.add(name)


def _share_out(count: int, available: Mapping[str, int]) -> dict[str, int]:
    """Numbers that are as even as what is available allows; earlier categories get what does not divide."""
    numbers = dict.fromkeys(available, 0)
    while count > 0 and (open_names := [name for name in available if numbers[name] < available[name]]):
        part = max(1, count // len(open_names))
        for name in open_names[:count]:
            share = min(part, available[name] - numbers[name], count)
            numbers[name] += share
            count -= share
    return numbers
