"""Workers are killed at random points. Every job ends, and committed work never happens twice.

`make soak-jobs` kills as often as `SOAK_KILLS` says, on each database, with the engine that `ENGINE` names.
"""

import asyncio
import os
import random
import re
from collections import Counter, defaultdict

from tests.jobs.forked import processes
from tests.jobs.killed_worker import CALLS, LINES, QUEUE, REFERENCE, ROUNDS, serve

from callboard.core import AssistantCanister, InvocationCanister, ResultCanister, UserCanister
from callboard.jobs.agent_kind import KIND, AgentInput
from callboard.jobs.database import Database
from callboard.jobs.engine import enqueue
from callboard.jobs.entries import read_conversation
from callboard.jobs.lease import EXIT_STATUS
from callboard.jobs.store import DurableStore

KILLS = int(os.environ.get("SOAK_KILLS", "5"))
SEED = int(os.environ.get("SOAK_SEED", "20261123"))
PATIENCE = 120
"""Seconds that a worker has for all jobs that are left."""


def run_worker(url, log, lines, seed, address):
    """Return the exit code of a worker that dies after so many lines, or ends when nothing is left."""
    process = processes.Process(target=serve, args=(url, log, lines, seed, address))
    process.start()
    process.join(PATIENCE)
    process.kill()
    process.join()
    return process.exitcode


def test_jobs_end_whenever_their_worker_is_killed(url, address, tmp_path):
    kill_workers(url, address, tmp_path, KILLS)


def kill_workers(url, address, folder, kills):
    """Kill so many workers, and check the jobs."""
    chance = random.Random(SEED)
    log = folder / "log.txt"
    with Database.open(url) as database:
        store = DurableStore(database, enqueue)
        jobs, codes = [], Counter()
        while codes[-9] < kills:
            number = len(jobs)
            job_input = AgentInput(agent=REFERENCE, prompt=UserCanister(f"job-{number}"))
            jobs.append(asyncio.run(store.create(KIND, input=job_input.to_json(), queue=QUEUE)))
            most = LINES * len(asyncio.run(find_unfinished(store)))
            codes[run_worker(url, log, chance.randint(1, most), number, address)] += 1
        while asyncio.run(find_unfinished(store)):
            # A lease of a second may be lost on a machine that is busy: the worker ends, and is started again.
            assert run_worker(url, log, 0, kills, address) in {0, EXIT_STATUS}
        lines = [line.split() for line in log.read_text().splitlines()]
        unknown = [asyncio.run(check_job(store, job, f"job-{number}", lines)) for number, job in enumerate(jobs)]
    check_order(lines)
    assert any(word == "known" for word, *_ in lines)
    count = f"{len(jobs)} jobs, {codes[-9]} workers were killed, {sum(unknown)} calls have an unknown outcome"
    print(f"\n{'Temporal, ' * bool(address)}{database.engine.dialect.name}: {count}")  # noqa: T201  # the soak's figures


async def find_unfinished(store):
    return [job for job in await store.list(limit=10_000) if not job.has_ended]


async def check_job(store, job, name, lines):
    """Check that the job is complete. Return the number of its calls with an unknown outcome."""
    row = await store.get(job.id)
    assert (row.state, row.output) == ("completed", {"text": "Done."}), (name, row)
    entries = await store.read_entries(job.id)
    assert [each.number for each in entries] == [*range(1, row.entries + 1)]
    canisters = read_conversation([each.item for each in entries])
    turn = [InvocationCanister] * CALLS + [ResultCanister] * CALLS
    assert [type(each) for each in canisters] == [UserCanister, *turn * ROUNDS, AssistantCanister]
    calls = {each.identifier: each for each in canisters if isinstance(each, InvocationCanister)}
    results = [each for each in canisters if isinstance(each, ResultCanister)]
    assert [each.invocation_id for each in results] == [*calls]
    begun = Counter(key for word, key, *_ in lines if word == "begin")
    ended = Counter(key for word, key, *_ in lines if word == "end")
    unknown = 0
    for each in results:
        call, key = calls[each.invocation_id], f"{job.id}:{each.invocation_id}"
        if each.error is None:
            assert each.text == f"did {key} {call.arguments['number']}"
            assert ended[key] >= 1
        else:
            assert re.match("Error: interrupted, outcome unknown", each.text)
            assert call.name == "change"
            unknown += 1
        if call.name == "change":
            assert begun[key] <= 1
    return unknown


def check_order(lines):
    """Check that no event known at the start of a segment happens after it."""
    known, replies = set(), defaultdict(int)
    for word, key, *rest in lines:
        match word:
            case "known":
                known.add(key)
            case "begin":
                assert key not in known
            case "resume":
                replies[key] = int(rest[0])
            case "ask":
                assert int(rest[0]) >= replies[key]
