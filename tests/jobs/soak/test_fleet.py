"""Many jobs, many deaths: `make soak-jobs`. Each test prints what it counted."""

# ruff: noqa: T201

import random
import signal
import time
from collections import Counter

import pytest
from tests.jobs.crashing_server import crashing_server
from tests.jobs.fleet import open_fleet
from tests.jobs.test_crashes import crash_while_rows_are_handed_back

JOBS = 120
ROUNDS = 8
KILLS = 20
ROWS = 250
AWAY_SECONDS = 30


@pytest.fixture
def server():
    with crashing_server() as server:
        yield server


def test_the_database_crashes_while_250_rows_are_handed_back(server, tmp_path):
    outcomes = crash_while_rows_are_handed_back(server, tmp_path, ROWS)
    print(f"{ROWS} jobs of a dead worker, the database crashed while they were handed back: {dict(outcomes)}")


def test_the_database_is_away_for_30_seconds(server, tmp_path):
    with open_fleet(server.url, tmp_path, seconds=0.2) as fleet:
        workers = fleet.start(3)
        fleet.create(JOBS, rounds=3)
        fleet.wait_for(lambda: len(fleet.read_lines()) > JOBS // 2)
        server.crash()
        time.sleep(AWAY_SECONDS)
        codes = Counter(worker.wait(60) for worker in workers)
        server.start()
        fleet.start(3)
        fleet.wait_for_jobs()
        print(f"{JOBS} jobs, the database away for {AWAY_SECONDS} s, workers ended with {dict(codes)}: none done twice")


def test_workers_are_killed_at_any_moment(url, tmp_path):
    chance = random.Random(7)
    with open_fleet(url, tmp_path, seconds=0.1, concurrency=4) as fleet:
        fleet.create(JOBS, rounds=ROUNDS)
        living = fleet.start(3)
        longest = 0.0
        for _ in range(KILLS):
            time.sleep(chance.uniform(0, 2))
            if all(job.has_ended for job in fleet.list()):
                break
            victim = living.pop(chance.randrange(3))
            victim.end(signal.SIGKILL)
            killed = time.monotonic()
            living += fleet.start()
            fleet.wait_for(lambda victim=victim: not fleet.owners()[victim.executor])
            longest = max(longest, time.monotonic() - killed)
        fleet.wait_for_jobs()
        done, all_calls = len(fleet.read_lines()), JOBS * ROUNDS
        kills = len(fleet.workers) - 3
        print(
            f"{JOBS} jobs, {kills} kills: {done} of {all_calls} calls done, none twice, {all_calls - done} of unknown"
        )
        print(f"outcome; handed back after {longest:.1f} s at most, the start of another worker included")
