"""How long the runs of all tests in a job may take."""

import pytest
from msgspec.structs import replace
from tests.coding.conftest import run_tests_once

from callboard.coding.agents import job_tests

WRONG = "calc.py\n```python\ndef add(a, b):\n    return a | b\n```\n"
RIGHT = "calc.py\n```python\ndef add(a, b):\n    return a + b\n```\n"


@pytest.mark.parametrize(("minutes", "first"), [(60, 600.0), (2, 120.0)])
def test_a_run_with_changed_code_may_take_a_little_longer_than_the_first(run, monkeypatch, minutes, first):
    limits = []

    async def run_tests(*arguments, seconds, **options):
        limits.append(seconds)
        return replace(await run_tests_once(*arguments, seconds=seconds, **options), seconds=6.0)

    monkeypatch.setattr(job_tests, "run_tests", run_tests)
    settings = f"[coding.limits]\nmax_task_duration_minutes = {minutes}\n"
    done = run("debug", {"description": "test_add fails"}, [WRONG, RIGHT], settings=settings)
    assert done.job.state == "completed"
    assert first / 2 < limits[0] <= first
    assert {*limits[1:]} == {30.0}


def test_a_run_is_no_longer_than_the_job_has_time():
    tests = job_tests.JobTests(None, None, "", guards_tests=True, required=True)
    for remaining, limit in ((700.0, 600.0), (40.0, 40.0), (-3.0, 5.0)):
        tests.remaining = lambda remaining=remaining: remaining
        assert tests.time_limit == limit
