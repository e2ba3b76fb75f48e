"""Select tasks by categories, numbers per category, and a total number.

Laws: the requested number of tasks is selected, unless there are fewer. Categories without a number get equal numbers,
as far as they have enough tasks. `sample` chooses the tasks of a category, which are the same on every machine.

The choice depends only on the identifiers and the seed, not on the order of the tasks. A larger choice with the same
seed contains the smaller one. If the second choice excludes the first, they share no task. So you can tune on one sample
and measure on another. The rank is a hash and not from `random`, because shuffles may change between Python versions.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from callboard.errors import CallerError
from callboard.evaluation.task import Task
from callboard.text.display import display


def sample(tasks: Iterable[Task], counts: Mapping[str, int], seed: int, *, exclude: Collection[str] = ()) -> list[Task]:
    """Return some tasks of each category, in the order of the categories in `counts`.

    Args:
        tasks: The tasks to choose from.
        counts: Number of tasks by category, such as `{"simple_python": 24, "irrelevance": 12}`.
        seed: The seed of the choice.
        exclude: Identifiers of tasks that are not chosen, such as the tasks of another sample.

    Raises:
        CallerError: A category does not have enough tasks.
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
                f"{count} tasks of {category} were requested, but there are {len(ranked)}",
                hint=f"the categories are {', '.join(sorted(filter(choices.get, choices))) or 'none'}",
            )
        chosen += ranked[:count]
    return chosen


def _rank(task: Task, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\n{task.suite}\n{task.identifier}".encode()).digest()


_DIGITS: Final = 6
"""Maximum digits of a number of tasks."""


def read_categories(texts: Sequence[str]) -> dict[str, int | None]:
    """Parse categories such as `NAME` or `NAME:COUNT`, separated by commas. A category without a count has None.

    Raises CallerError.
    """
    categories: dict[str, int | None] = {}
    for word in [each.strip() for text in texts for each in text.split(",") if each.strip()]:
        name, colon, count = word.partition(":")
        if colon and not (count.isdecimal() and len(count) <= _DIGITS):
            raise CallerError(f"{count!r} is not a number of tasks", path="--categories", hint="use NAME or NAME:COUNT")
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
        tasks: The available tasks.
        categories: The categories, with a number of tasks or None. The default is all categories.
        count: Total number of tasks, shared evenly among the categories without a number. The default is all tasks.
        seed: The seed of the choice.
        exclude: Identifiers of tasks that are not selected.

    Returns:
        The selected tasks, category by category, in the order of the seed.

    Raises:
        CallerError: There is no such category, a category does not have enough tasks, no task remains, or two tasks
            have the same name.
    """
    _refuse_duplicates(tasks)
    known = dict.fromkeys(task.category for task in tasks)
    for name in categories or {}:
        if name not in known:
            hint = f"there are {', '.join(known)}"
            raise CallerError(f"no task of the category {name!r}", path="--categories", hint=hint)
    names = [*(categories or known)]
    available = Counter(task.category for task in tasks if task.identifier not in exclude)
    fixed = {name: number for name, number in (categories or {}).items() if number is not None}
    shared = {name: available[name] for name in names if name not in fixed}
    numbers = fixed | (shared if count is None else _share_out(max(0, count - sum(fixed.values())), shared))
    selected = sample(tasks, {name: numbers[name] for name in names}, seed, exclude=exclude)
    if not selected:
        raise CallerError("no task remains", hint="take more categories or a larger number, or exclude fewer tasks")
    return selected


def _refuse_duplicates(tasks: Sequence[Task]) -> None:
    """Raise CallerError if two tasks have the same name, because their outcomes would be mixed up."""
    for name, count in Counter((task.suite, task.category, task.identifier) for task in tasks).items():
        if count > 1:
            raise CallerError("two tasks have this name", path=display("/".join(name)), hint="give each its own")


def _share_out(count: int, available: Mapping[str, int]) -> dict[str, int]:
    """Share out a number as evenly as the available tasks allow. Earlier categories get the remainder."""
    numbers = dict.fromkeys(available, 0)
    while count > 0 and (open_names := [name for name in available if numbers[name] < available[name]]):
        part = max(1, count // len(open_names))
        for name in open_names[:count]:
            share = min(part, available[name] - numbers[name], count)
            numbers[name] += share
            count -= share
    return numbers
