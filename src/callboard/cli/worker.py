"""`callboard worker`: a process that runs durable jobs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callboard.cli.command_group import ADVANCED
from callboard.cli.options import LogLevel, option, takes_options
from callboard.cli.settings import import_from, load_telemetry_settings, read_log_level, start_telemetry
from callboard.extras import require_extra
from callboard.jobs.job import QUEUE
from callboard.telemetry.logs import configure_logs

if TYPE_CHECKING:
    from callboard.jobs.database import Database
    from callboard.jobs.segment import OnSegment
    from callboard.jobs.worker import Worker


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """The options of `callboard worker`."""

    concurrency: Annotated[int, option(min=1, help="Number of jobs to run at once.")] = 4
    queue: Annotated[
        list[str] | None,
        option(
            help="A queue to serve; NAME=STARTS limits its job starts per minute, across all workers; repeatable.",
            show_default="callboard, the queue of this host, and the runs of this directory",
        ),
    ] = None
    agents: Annotated[
        list[str] | None, option(help="An agent whose jobs to run: MODULE:NAME or FILE.py:NAME; repeatable.")
    ] = None
    until_idle: Annotated[
        float | None, option(min=0, help="Exit after this many seconds without work.", panel=ADVANCED)
    ] = None
    metrics: Annotated[
        int | None,
        option(
            min=0,
            max=65535,
            help="Serve Prometheus metrics on this port of 127.0.0.1; 0 selects a free one.",
            panel=ADVANCED,
        ),
    ] = None
    log_level: LogLevel = "warning"


@takes_options(WorkerOptions)
def worker(options: WorkerOptions) -> None:
    """Run durable jobs: coding jobs, and jobs of the agents that you name.

    Any number of workers share the database of CALLBOARD_DATABASE_URL: sqlite:////PATH/jobs.db on one machine,
    postgresql://... on many. If a worker dies, other workers take over its jobs. The first SIGTERM or Ctrl-C makes a
    worker hand its jobs back at their next safe point. The second ends it at once.
    """
    require_extra("jobs", *(["otel"] if options.metrics is not None else []))
    from callboard.jobs.database import Database  # noqa: PLC0415

    level = read_log_level(options.log_level)
    telemetry = load_telemetry_settings()
    configure_logs(level, telemetry.log_format(os.environ))
    start_telemetry(telemetry, timeout=None)
    starts = _read_queues(options.queue or ())
    with Database.open() as database, _serve_figures(database, options.metrics) as on_segment:
        asyncio.run(_work(database, starts, options, on_segment))


@contextmanager
def _serve_figures(database: Database, port: int | None) -> Generator[OnSegment | None]:
    """Serve the worker's metrics if there is a port. Yield the function that counts its segments."""
    if port is None:
        yield None
        return
    from callboard.jobs.metrics import WorkerMetrics  # noqa: PLC0415  # it needs an extra
    from callboard.jobs.queries import count_open_jobs  # noqa: PLC0415
    from callboard.telemetry.prometheus import MetricsPage  # noqa: PLC0415

    figures = WorkerMetrics(lambda: database.read_blocking(count_open_jobs))
    with closing(MetricsPage(port, figures.render)) as page:
        typer.echo(f"Prometheus metrics are at http://127.0.0.1:{page.port}/metrics", err=True)
        yield figures.add_segment


async def _work(
    database: Database, starts: Mapping[str, int], options: WorkerOptions, on_segment: OnSegment | None
) -> None:
    from callboard.cli.models import CODING_FACTS, open_model  # noqa: PLC0415  # as above
    from callboard.cli.run_kind import RunKind  # noqa: PLC0415
    from callboard.jobs.agent_kind import AgentKind, load_agent  # noqa: PLC0415
    from callboard.jobs.coding_kind import coding_kinds  # noqa: PLC0415
    from callboard.jobs.job import agent_queue, normalize_reference  # noqa: PLC0415
    from callboard.jobs.store import DurableStore  # noqa: PLC0415
    from callboard.jobs.worker import prepare_worker  # noqa: PLC0415

    import_from(Path.cwd())
    agents = {normalize_reference(each): load_agent(each) for each in options.agents or ()}
    queues = {**starts, **{agent_queue(each): 0 for each in agents}}
    tell = partial(typer.echo, err=True)
    store = DurableStore(database)
    coding = coding_kinds(store, lambda settings: open_model(settings, tell, CODING_FACTS))
    kinds = [AgentKind(agents), RunKind(database, tell), *coding]
    preparing = prepare_worker(store, kinds, queues, tell, on_segment=on_segment, concurrency=options.concurrency)
    async with preparing as make_worker, make_worker() as running:
        _stop_at_signals(running)
        tell(f"callboard works on {', '.join(queues)} of {database.place} (Ctrl-C stops it)")
        await running.run(options.until_idle)


def _stop_at_signals(running: Worker) -> None:
    """Stop the worker in good order at the first SIGTERM or SIGINT; let the next one end the process."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        running.stop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop)


def _read_queues(texts: Iterable[str]) -> dict[str, int]:
    """Return the queues by name, with their limits of job starts per minute; 0 means unlimited."""
    from callboard.cli.run_kind import run_queue  # noqa: PLC0415  # not for --help
    from callboard.jobs.coding_kind import host_queue  # noqa: PLC0415

    queues = {}
    known = (QUEUE, host_queue(), run_queue(os.getcwd()))  # noqa: PTH109  # as above
    for text in texts or known:
        name, equals, starts = ("", "", "") if text in known else text.rpartition("=")
        if equals and not (starts.isascii() and starts.isdigit() and int(starts)):
            raise typer.BadParameter(f"{text!r} does not end with a number of starts per minute", param_hint="--queue")
        queues[name if equals else text] = int(starts) if equals else 0
    return queues
