"""Choose some of many tasks: the same ones on every machine, and never one that is excluded.

Laws: the choice follows from the identifiers and the seed, not from the order of the tasks; the choice of more tasks by
the same seed holds that of fewer; two choices share no task where the second excludes the identifiers of the first.
So what was chosen by one sample can be measured on another.

Why a hash and not `random`: Python does not promise that its shuffles stay the same from version to version.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from callboard.errors import CallerError
from callboard.evaluation.task import Task


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
