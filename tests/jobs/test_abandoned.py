"""Jobs whose workers were killed, as a process sees them that runs no jobs itself."""

import asyncio
import signal

import pytest
from tests.jobs.fleet import open_fleet

from callboard.jobs.store import DEAD


@pytest.fixture
def fleet(url, tmp_path):
    with open_fleet(url, tmp_path) as fleet:
        yield fleet


def see(fleet):
    return {each.id: (each.state, each.reason) for each in fleet.store.mark_abandoned(fleet.list())}


def wait_until_dead(fleet, jobs):
    """PostgreSQL ends a session some time after its client has."""
    fleet.wait_for(lambda: all(see(fleet)[each.id] == ("interrupted", DEAD) for each in jobs))


@pytest.mark.parametrize("state", ["interrupted", "cancelled"])
def test_a_job_of_a_killed_worker_is_ended_and_resumed(fleet, state):
    [victim] = fleet.start()
    jobs = fleet.create(2, rounds=60)
    fleet.wait_for(lambda: len(fleet.read_lines()) > 2)
    alive = [asyncio.run(fleet.store.end_abandoned(each.id, state)) for each in jobs]
    assert {each.state for each in alive} == {"running"}
    victim.end(signal.SIGKILL)
    wait_until_dead(fleet, jobs)
    assert {each.state for each in fleet.list()} == {"running"}
    ended = [asyncio.run(fleet.store.end_abandoned(each.id, state, "why")) for each in jobs]
    assert {(each.state, each.reason) for each in ended} == {(state, "why")}
    asyncio.run(fleet.store.resume(jobs[0].id))
    # The next worker finds both segments of the dead one, and leaves them as they are.
    fleet.start()
    fleet.wait_for(lambda: not fleet.owners() and see(fleet)[jobs[0].id][0] == "completed")
    assert see(fleet)[jobs[1].id] == (state, "why")
    asyncio.run(fleet.store.resume(jobs[1].id))
    fleet.wait_for_jobs()


def test_a_job_that_another_worker_took_over_is_left_to_it(fleet):
    victim, _ = fleet.start(2)
    jobs = fleet.create(4, rounds=8)
    fleet.wait_for(lambda: fleet.owners()[victim.executor])
    victim.end(signal.SIGKILL)
    fleet.wait_for(lambda: all(each.executor != victim.executor for each in fleet.list() if not each.has_ended))
    assert "interrupted" not in {asyncio.run(fleet.store.end_abandoned(each.id)).state for each in jobs}
    fleet.wait_for_jobs()
