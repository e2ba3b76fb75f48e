"""Forks of coding jobs where a phase had failed, and where code blocks are the answers."""

import pytest
from tests.coding.scripts import PHASED, SHORT
from tests.jobs import test_coding_kind
from tests.jobs.test_coding_kind import new_control, run_here

from callboard.coding.job import PhaseStarted

repository, faulty, quick_tests, place = (
    test_coding_kind.repository,
    test_coding_kind.faulty,
    test_coding_kind.quick_tests,
    test_coding_kind.place,
)


def fork(place, job, at_round, script):
    place.ask(lambda store: store.fork(job.id, at_round))
    ended, steps = run_here(place, script, new_control())
    assert ended.parent == f"{job.id}@{at_round}"
    return ended, steps


def test_a_fork_of_the_last_round_of_a_failed_job_repeats_its_phase(place):
    place.submit()
    job, _ = run_here(place, {**PHASED, "fix": ["Done."]}, new_control())
    assert job.state == "failed"
    ended, steps = fork(place, job, job.rounds, PHASED)
    assert ended.state == "completed", (ended.reason, ended.error)
    assert [each.name for each in steps if isinstance(each, PhaseStarted)].count("fix") == 2


@pytest.mark.parametrize("at_round", [1, 2])
def test_a_fork_of_attempts_with_code_blocks(place, at_round):
    place.submit(workflow="short")
    job, _ = run_here(place, SHORT, new_control())
    assert (job.state, job.rounds) == ("completed", 2)
    ended, _ = fork(place, job, at_round, SHORT)
    assert (ended.state, ended.rounds) == ("completed", 2), (ended.reason, ended.error)
    assert place.repository.git("show", f"{ended.output['branch']}:calc.py").endswith("a + b\n")
    # A fork of the fork.
    again, _ = fork(place, ended, at_round, SHORT)
    assert again.state == "completed", (again.reason, again.error)
