"""Many jobs, many deaths: `make soak-jobs`. Each test prints what it counted."""

# ruff: noqa: T201

import os
import random
import signal
import time
from collections import Counter

import pytest
from tests.jobs.fleet import open_fleet
from tests.jobs.test_crashes import crash_while_rows_are_handed_back, crashing_server

from callboard.jobs.lease import EXIT_STATUS

JOBS = 120
ROUNDS = 8
KILLS = int(os.environ.get("SOAK_KILLS", "20"))
ROWS = 250
AWAY_SECONDS = 30


@pytest.fixture
def server():
    with crashing_server() as server:
        yield server


def test_the_database_crashes_while_250_rows_are_handed_back(server, tmp_path):
    outcomes = crash_while_rows_are_handed_back(server, tmp_path, ROWS)
    print(f"{ROWS} jobs of a dead worker, the database crashed while they were handed back: {dict(outcomes)}")


def test_the_database_is_away_for_30_seconds(server, address, tmp_path):
    with open_fleet(server.url, tmp_path, seconds=0.2, address=address) as fleet:
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


def test_workers_are_killed_at_any_moment(url, address, tmp_path):
    chance = random.Random(7)
    with open_fleet(url, tmp_path, seconds=0.1, concurrency=4, address=address) as fleet:
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


def test_workers_stand_still_while_others_take_over(empty_postgresql, address, tmp_path):
    with open_fleet(empty_postgresql, tmp_path, seconds=0.2, concurrency=4, address=address) as fleet:
        living = fleet.start(3)
        fleet.create(JOBS, rounds=ROUNDS)
        for _ in range(3):
            sleeper = living.pop(0)
            fleet.wait_for(lambda sleeper=sleeper: fleet.owners()[sleeper.executor])
            sleeper.send(signal.SIGSTOP)
            fleet.wait_for(lambda sleeper=sleeper: not fleet.owners()[sleeper.executor])
            sleeper.send(signal.SIGCONT)
            assert sleeper.wait(60) == EXIT_STATUS
            living += fleet.start()
        fleet.wait_for_jobs()
        print(
            f"{JOBS} jobs, 3 workers stood still: {len(fleet.read_lines())} of {JOBS * ROUNDS} calls done, none twice"
        )


def test_clocks_are_an_hour_apart(empty_postgresql, address, tmp_path):
    with open_fleet(empty_postgresql, tmp_path, concurrency=4, address=address) as fleet:
        [victim] = fleet.start(clock_error=3600)
        fleet.start(clock_error=-3600)
        fleet.create(JOBS, rounds=3)
        fleet.wait_for(lambda: fleet.owners()[victim.executor])
        victim.end(signal.SIGKILL)
        fleet.wait_for_jobs()
        print(f"{JOBS} jobs, clocks an hour apart, one worker killed: {len(fleet.read_lines())} calls done, none twice")


@pytest.mark.skipif(os.environ.get("ENGINE") != "temporal", reason="Temporal is another engine")
def test_the_server_of_temporal_is_started_again(temporal, empty_postgresql, tmp_path):
    with open_fleet(empty_postgresql, tmp_path, seconds=0.1, concurrency=4, address=temporal.address) as fleet:
        fleet.start(3)
        fleet.create(JOBS, rounds=ROUNDS)
        for _ in range(5):
            done = len(fleet.read_lines())
            fleet.wait_for(lambda done=done: len(fleet.read_lines()) > done + JOBS // 2)
            temporal.kill()
            time.sleep(3)  # the server is away while the segments that run heartbeat and end
            temporal.start()
        fleet.wait_for_jobs()
        done = len(fleet.read_lines())
        print(f"{JOBS} jobs, Temporal restarted 5 times: {done} of {JOBS * ROUNDS} calls done, none twice")
