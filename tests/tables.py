"""Tests of tables: one test for all rows of a table, which shows each row that fails."""

import asyncio
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

PARAM = type(pytest.param())


def table(
    names: str | Iterable[str], rows: Iterable[Any], ids: Callable[[Any], object] | Iterable[object] | None = None
):
    """Decorate a test that is run for each row, as `pytest.mark.parametrize` does, but counts as one test.

    A failure does not end the test: the rows that fail are raised together at the end. A test may have several tables, and is
    run for each combination of their rows. Fixtures are made once for all rows.

    Args:
        names: The parameters, as a string with commas or as a list.
        rows: The values of the parameters, or of the only one. A row may be a `pytest.param` that has an id.
        ids: A function that names a value, or a name for each row. The default is the row itself.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = list(rows)
    labels = None if ids is None or callable(ids) else list(ids)

    def values_of(row: Any) -> tuple[Any, ...]:
        if isinstance(row, PARAM):
            return row.values
        return (row,) if len(parameters) == 1 else tuple(row)

    def label(number: int, row: Any) -> str:
        if isinstance(row, PARAM) and row.id:
            return row.id
        if labels is not None:
            return str(labels[number])
        return ", ".join(str(ids(value)) if callable(ids) else repr(value)[:200] for value in values_of(row))

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        def run(**fixtures: Any) -> None:
            failures = []
            for number, row in enumerate(rows):
                try:
                    result = test(**dict(zip(parameters, values_of(row), strict=True)), **fixtures)
                    if inspect.iscoroutine(result):
                        asyncio.run(result)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # any failure is raised below
                    error.add_note(f"row {number}: {label(number, row)}")
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} rows failed", failures)

        signature = inspect.signature(test)
        others = [each for name, each in signature.parameters.items() if name not in parameters]
        run.__signature__ = signature.replace(parameters=others)
        run.__name__, run.__qualname__, run.__module__, run.__doc__ = (
            test.__name__,
            test.__qualname__,
            test.__module__,
            test.__doc__,
        )
        for mark in getattr(test, "pytestmark", []):
            run.pytestmark = [*getattr(run, "pytestmark", []), mark]
        return run

    return decorate
