"""What do durable jobs cost, and how much do one worker, one SQLite file and one PostgreSQL carry?

usage: python -m bench.jobs [--quick] [--json] [--no-peers] [TABLE ...]

    commit      ms of a transaction of one row in a database that holds nothing else, the median of 300: what the disk
                costs whoever commits. A round of ours is three of them, and two where the tool is idempotent
    rounds      ms that durability adds to a round of model and tool: of a run's first tenth and of its last, and the
                latter to the former; what the run leaves in the database, in KB. Least of five runs each, of which the
                slow ones make fewer
    recovery    a worker is killed after a thousand rounds with 200 KB of context, while another is there: seconds until
                the model is asked again, ms of them in the other's segment; KB of the transcript, and of the database
                beyond an empty one
    list        ms to list of 10,000 jobs the newest 100, and all
    idle        CPU of a worker that has nothing to do, in percent of a core
    queue       1,000 queued jobs of a round each: jobs a second, in percent of a core the CPU of each worker and of
                PostgreSQL's processes; and jobs a second that one process queues

The model is scripted, and the tools do nothing. SQLite is in the directory for temporary files, and PostgreSQL is the
machine's, on loopback with its own settings: both wait for the disk. Peers are asked to make the same rounds, with their
own scripted model.

Wanted: at most 3 ms a round on SQLite and 5 on PostgreSQL, and the same at the end as in the beginning; recovery in 2 s,
and a database of at most twice the transcript; 10,000 jobs in 50 ms; an idle worker under 1 %.
"""

import argparse
import asyncio
import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench.contenders import CONTENDERS, ROOT, label, load, measure, shown

TICKS = os.sysconf("SC_CLK_TCK")
WIDTH = 40
"""Of the first column."""
CONCURRENCY = 8
"""Jobs that a worker runs at once."""
KILOBYTES = 200
"""Of context that recovery reads."""


class Size(NamedTuple):
    turns: int = 5
    commits: int = 300
    rounds: int = 1000
    seconds: int = 20
    """After which a contender begins no further turn."""
    recoveries: int = 3
    listed: int = 10_000
    idle: int = 15
    queued: int = 1000


QUICK = Size(turns=1, commits=5, rounds=20, recoveries=1, listed=20, idle=1, queued=6)


class Run(NamedTuple):
    """A row of the table of rounds."""

    contender: str
    database: str
    tool: str = "change"


RUNS = (
    Run("callboard-jobs", "sqlite"),
    Run("callboard-jobs", "sqlite", "look"),
    Run("callboard-jobs", "postgresql"),
    Run("callboard-jobs", "postgresql", "look"),
    Run("pydantic-ai-dbos", "sqlite"),
    Run("pydantic-ai-dbos", "postgresql"),
    Run("langgraph", "sqlite"),
)
LABELS = {"change": "", "look": ", idempotent"}
Figures = dict[str, dict[str, float]]


class Databases:
    """Empty databases: files in a folder, and databases of a PostgreSQL."""

    def __init__(self, folder: Path, server: Any) -> None:
        self._folder = folder
        self._server = server
        self._count = 0
        self._url = server.start("") if server else ""
        self.kinds = ["sqlite", "postgresql"] if server else ["sqlite"]

    def create(self, kind: str) -> str:
        self._count += 1
        if kind == "sqlite":
            return f"sqlite:///{self._folder / f'{self._count}.db'}"
        self._execute(f"CREATE DATABASE bench_{self._count}")
        return f"{self._url.removesuffix('postgres')}bench_{self._count}"

    def kilobytes(self, url: str) -> float:
        """What is in a database that nobody has open."""
        if url.startswith("sqlite"):
            path = Path(url.removeprefix("sqlite:///"))
            return sum([each.stat().st_size for each in path.parent.glob(f"{path.name}*") if each.is_file()]) / 1000
        tables = (
            "SELECT sum(pg_total_relation_size(pg_class.oid)) FROM pg_class JOIN pg_namespace ON relnamespace = "
            "pg_namespace.oid WHERE relkind = 'r' AND nspname NOT IN ('pg_catalog', 'information_schema')"
        )
        return float(self._execute(tables, url)) / 1000

    def spent(self) -> float:
        """CPU seconds of PostgreSQL's processes so far, of those that ended among them."""
        if not self._server:
            return 0.0
        parent = int((self._server.room / "data/postmaster.pid").read_text("ascii").split()[0])
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text("ascii").split()
        return spent(parent, ended=True) + sum([spent(int(child)) for child in children])

    def _execute(self, query: str, url: str = "") -> Any:
        import psycopg  # noqa: PLC0415  # the peers' environments have none

        with psycopg.connect(url or self._url, autocommit=True) as connection:
            cursor = connection.execute(query)
            found = cursor.fetchone() if cursor.description else None
            return found and found[0]


def spent(process: int, *, ended: bool = False) -> float:
    """CPU seconds of a process, with those of its children that ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum([int(each) for each in fields[11 : 15 if ended else 13]]) / TICKS


@contextmanager
def databases() -> Iterator[Databases]:
    from tests.postgresql import PostgresServer, find_control  # noqa: PLC0415  # as above

    control = find_control()
    server = PostgresServer.make(control) if control else None
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder, ExitStack() as stack:
        if server:
            stack.callback(shutil.rmtree, server.room, ignore_errors=True)
        given = Databases(Path(folder), server)
        if server:
            stack.callback(server.stop)
        yield given


@contextmanager
def worker(url: str, concurrency: int = CONCURRENCY) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "ignore", "-m", "bench.contenders.ours_jobs", url, str(concurrency)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            if not process.stdout or process.stdout.readline() != "ready\n":
                raise SystemExit(f"a worker on {url} does not start")
            yield process
        finally:
            process.kill()


def end(process: subprocess.Popen[str]) -> tuple[float, float]:
    """Let a worker end: the seconds for which it had work, and the CPU seconds of them."""
    output, _ = process.communicate("")
    seconds, cpu = json.loads(output.splitlines()[-1])
    return seconds, cpu


def measure_commit(given: Databases, size: Size, _: bool) -> Figures:
    import psycopg  # noqa: PLC0415  # as above

    figures: Figures = {}
    for kind in given.kinds:
        url = given.create(kind)
        if kind == "sqlite":
            connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
        else:
            connection = psycopg.connect(url, autocommit=True)
        connection.execute("CREATE TABLE bench (line TEXT)")
        spans = []
        for _ in range(size.commits):
            began = time.perf_counter()
            connection.execute("INSERT INTO bench VALUES ('a line of an entry')")
            spans.append((time.perf_counter() - began) * 1e3)
        connection.close()
        figures[kind] = {"ms": median(spans)}
    return figures


def alone(name: str, url: str, tool: str, *sizes: str) -> dict[str, float]:
    """The least ms of a round at the beginning and at the end of a run, without and with the database."""
    logging.disable(logging.CRITICAL)
    contender = load(name)
    rounds, turns, seconds = map(int, sizes)
    tenth = max(1, rounds // 10)
    least: dict[str, float] = {}
    began, turn = time.monotonic(), 0
    while turn < turns and (not turn or time.monotonic() - began < seconds):
        turn += 1
        for what, where in (("bare", ""), ("durable", url)):
            moments = asyncio.run(contender.request_moments(where, rounds, tool))
            for at, part in (("first", moments[: tenth + 1]), ("last", moments[-tenth - 1 :])):
                key = f"{what} {at}"
                cost = (part[-1] - part[0]) / tenth * 1e3
                least[key] = min(cost, least.get(key, cost))
    return {**least, "turns": turn}


def measure_rounds(given: Databases, size: Size, peers: bool) -> Figures:
    figures: Figures = {}
    for run in RUNS:
        if run.database not in given.kinds or (CONTENDERS[run.contender].package and not peers):
            continue
        url = given.create(run.database)
        found = measure("bench.jobs", run.contender, url, run.tool, size.rounds, size.turns, size.seconds)
        first, last = (found[f"durable {at}"] - found[f"bare {at}"] for at in ("first", "last"))
        figures[f"{label(run.contender).removesuffix(', jobs')}, {run.database}{LABELS[run.tool]}"] = {
            "bare": found["bare first"],
            "first": first,
            "last": last,
            "last/first": last / first,
            "KB": given.kilobytes(url) / found["turns"],
            "runs": found["turns"],
        }
    return figures


def measure_recovery(given: Databases, size: Size, _: bool) -> Figures:
    return {kind: asyncio.run(recover(given, kind, size)) for kind in given.kinds}


async def recover(given: Databases, kind: str, size: Size) -> dict[str, float]:
    """The best of some recoveries, each in a database of its own."""
    from bench.contenders.ours_jobs import describe, open_store, submit  # noqa: PLC0415  # as above

    found = []
    empty = given.create(kind)
    async with open_store(empty):
        pass
    for _ in range(size.recoveries):
        url = given.create(kind)
        with tempfile.TemporaryDirectory() as folder:
            marks = Path(folder) / "marks"
            task = describe(size.rounds + 1, "change", KILOBYTES * 1000 // size.rounds, size.rounds, str(marks))
            async with open_store(url) as (_engine, store):
                with worker(url, 1), worker(url, 1):
                    job = await submit(store, task)
                    while not (await store.get(job.id)).has_ended:  # noqa: ASYNC110  # another process ends it
                        await asyncio.sleep(0.5)
                transcript = sum([len(each.line) + 1 for each in await store.read_entries(job.id)]) / 1000
            (died, _of_dead), (went_on, since_segment) = (map(float, line.split()) for line in marks.open())
        found.append((went_on - died, since_segment * 1e3, transcript, given.kilobytes(url) - given.kilobytes(empty)))
    seconds, milliseconds, transcript, kilobytes = map(min, zip(*found, strict=True))
    return {
        "s": seconds,
        "ms": milliseconds,
        "transcript": transcript,
        "KB": kilobytes,
        "times": kilobytes / transcript,
    }


def measure_list(given: Databases, size: Size, _: bool) -> Figures:
    return {kind: asyncio.run(list_jobs(given.create(kind), size)) for kind in given.kinds}


async def list_jobs(url: str, size: Size) -> dict[str, float]:
    from bench.contenders.ours_jobs import open_store  # noqa: PLC0415  # as above

    from callboard.jobs import queries  # noqa: PLC0415  # as above
    from callboard.jobs.job import DurableJob, new_identifier  # noqa: PLC0415  # as above

    now = datetime.now(UTC)
    ended: Any = {"state": "completed", "created_at": now, "updated_at": now, "completed_at": now, "output": {}}
    async with open_store(url) as (_, store):
        moments = [now - timedelta(milliseconds=each) for each in range(size.listed)]
        rows = [DurableJob(id=new_identifier(each), kind="agent", title="A job", **ended) for each in moments]
        await store.database.run(lambda connection: [queries.add_job(connection, job) for job in rows])
        figures = {}
        for name, limit in (("newest 100", 100), ("all", size.listed)):
            spans = []
            for _ in range(size.turns):
                began = time.perf_counter()
                if len(await store.list(limit=limit)) != min(limit, size.listed):
                    raise AssertionError(url)
                spans.append((time.perf_counter() - began) * 1e3)
            figures[name] = min(spans)
    return figures


def measure_idle(given: Databases, size: Size, _: bool) -> Figures:
    """All workers at once, for they do nothing."""
    with ExitStack() as stack:
        workers = {kind: stack.enter_context(worker(given.create(kind))) for kind in given.kinds}
        time.sleep(2)
        before, server = {kind: spent(each.pid) for kind, each in workers.items()}, given.spent()
        time.sleep(size.idle)
        share = {kind: (spent(each.pid) - before[kind]) / size.idle * 100 for kind, each in workers.items()}
        serving = (given.spent() - server) / size.idle * 100
        for each in workers.values():
            end(each)
    figures = {kind: {"worker %": value} for kind, value in share.items()}
    for kind in given.kinds[1:]:
        figures[kind]["server %"] = serving
    return figures


def measure_queue(given: Databases, size: Size, _: bool) -> Figures:
    return {
        f"{kind}, {count} worker{'s' * (count > 1)}": asyncio.run(work_off(given, kind, count, size))
        for kind in given.kinds
        for count in (1, 2)
    }


async def work_off(given: Databases, kind: str, count: int, size: Size) -> dict[str, float]:
    """Queue jobs, start workers, and see what they do until all is done."""
    from bench.contenders.ours_jobs import describe, open_store, submit  # noqa: PLC0415  # as above
    from sqlalchemy import func, select  # noqa: PLC0415  # as below

    from callboard.jobs.tables import jobs  # noqa: PLC0415  # as above

    url, task = given.create(kind), describe(1)
    left = select(func.count()).where(jobs.c.completed_at.is_(None))
    span = select(func.max(jobs.c.completed_at) - func.min(jobs.c.started_at))
    async with open_store(url) as (_, store):
        began = time.perf_counter()
        for _ in range(size.queued):
            await submit(store, task)
        queued = time.perf_counter() - began
        server = given.spent()
        with ExitStack() as stack:
            workers = [stack.enter_context(worker(url)) for _ in range(count)]
            while await store.database.read(lambda connection: connection.scalar(left)):  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.5)
            serving = given.spent() - server
            ends = [end(each) for each in workers]
        seconds = await store.database.read(lambda connection: connection.scalar(span)) / 1e6
    figures = {"jobs/s": size.queued / seconds, "worker %": sum([cpu for _, cpu in ends]) / seconds / count * 100}
    if kind == "postgresql":
        figures["server %"] = serving / seconds * 100
    return {**figures, "queued/s": size.queued / queued}


class Table(NamedTuple):
    title: str
    columns: dict[str, int]
    """With so many digits behind the point."""
    measure: Callable[[Databases, Size, bool], Figures]


TABLES = {
    "commit": Table("a commit of one row", {"ms": 2}, measure_commit),
    "rounds": Table(
        "ms of a round, and what durability adds",
        {"bare": 2, "first": 2, "last": 2, "last/first": 2, "KB": 0, "runs": 0},
        measure_rounds,
    ),
    "recovery": Table(
        "recovery", {"s": 2, "ms": 0, "transcript": 0, "KB": 0, "times": 2}, measure_recovery
    ),
    "list": Table("ms to list", {"newest 100": 1, "all": 1}, measure_list),
    "idle": Table("a worker with nothing to do", {"worker %": 2, "server %": 2}, measure_idle),
    "queue": Table(
        "queued jobs", {"jobs/s": 0, "worker %": 0, "server %": 0, "queued/s": 0}, measure_queue
    ),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="*", metavar="TABLE", help="all of them by default")
    parser.add_argument("--quick", action="store_true", help="one short turn, whose figures mean nothing")
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="measure them too")
    options = parser.parse_args()
    if unknown := {*options.table} - {*TABLES}:
        parser.error(f"no such table: {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    size = QUICK if options.quick else Size()
    found: dict[str, Figures] = {}
    with databases() as given:
        if len(given.kinds) < 2 and not options.json:
            print("# there is no PostgreSQL: measured without it")
        for name in options.table or TABLES:
            title, columns, take = TABLES[name]
            found[name] = take(given, size, options.peers)
            if not options.json:
                print(f"\n{title:{WIDTH}}" + "".join([f"{column:>12}" for column in columns]))
                for each, cells in found[name].items():
                    figures = [shown(cells.get(column), digits) for column, digits in columns.items()]
                    print(f"{each:{WIDTH}}" + "".join([f"{figure:>12}" for figure in figures]), flush=True)
    if options.json:
        print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in CONTENDERS:
        print(json.dumps(alone(*sys.argv[1:])))
    else:
        sys.exit(main())
