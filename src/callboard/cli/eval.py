"""`callboard eval`: how well a model calls tools, asked in one or several ways.

Progress goes to standard error: a bar on a terminal, otherwise some lines.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Self

import msgspec
import typer
from msgspec.structs import replace

from callboard.cli import complete, interrupt
from callboard.cli.command_group import ADVANCED, DefaultGroup
from callboard.cli.eval_add import add
from callboard.cli.eval_model import MeasuredModel
from callboard.cli.options import Json, option, takes_options
from callboard.configuration import load_settings, user_file
from callboard.configuration.edit_config import FactEvidence, write_profile
from callboard.errors import CallboardError, CallerError
from callboard.evaluation.check import check_step
from callboard.evaluation.html_report import render_html
from callboard.evaluation.profile_choice import choose_profile
from callboard.evaluation.records import RecordFile
from callboard.evaluation.report import Report, format_report, make_report
from callboard.evaluation.runner import MAX_TOKENS, TIMEOUT, RunnerOptions, TaskOutcome, run_tasks
from callboard.evaluation.selection import read_categories, select_tasks
from callboard.evaluation.suites import load_suite
from callboard.evaluation.task import Task
from callboard.evaluation.threshold_fit import fit_thresholds
from callboard.evaluation.variants import ALL, FITTED, Variant, describe_facts, make_variants
from callboard.extras import require_extra
from callboard.profiles import resolve
from callboard.text.display import escape

_LINES: Final = 24
"""Approximate number of progress lines without a terminal."""


class EvalProgress:
    """Shows how far a run is.

    Args:
        total: Number of expected outcomes.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._every = max(1, total // _LINES)
        self._done = self._solved = self._failed = self._cached = 0
        self._began = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Self:
        if typer.get_text_stream("stderr").isatty():
            from rich.console import Console  # noqa: PLC0415  # rich costs 50 ms
            from rich.progress import (  # noqa: PLC0415
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.description}", markup=False),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("loading", total=self._total)
            self._bar.start()
        else:
            typer.echo(f"{self._total} tasks", err=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the bar, and print the total time."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._done:
            cached = f", {self._cached} of them known already" if self._cached else ""
            seconds = time.monotonic() - self._began
            typer.echo(f"{self._done} of {self._total} tasks in {seconds:.0f} s{cached}", err=True)
            self._done = 0

    def show(self, outcome: TaskOutcome) -> None:
        """Count an outcome."""
        self._done += 1
        self._cached += outcome.is_cached
        word = _describe(outcome)
        self._solved += word == "solved"
        self._failed += word == "failed"
        failed = f", {self._failed} failed" if self._failed else ""
        line = f"{outcome.variant.name}: {self._solved} solved{failed}; {escape(outcome.task.identifier)} {word}"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done, description=line)
        elif not outcome.is_cached and (self._done % self._every == 0 or self._done == 1):
            typer.echo(f"{self._done}/{self._total} {line} ({outcome.record.seconds:.1f} s)", err=True)


def _describe(outcome: TaskOutcome) -> str:
    if outcome.record.failure:
        return "failed"
    task = outcome.task
    judgements = [
        check_step(task, step, attempt) for step, attempt in zip(task.steps, outcome.record.attempts, strict=False)
    ]
    return next((each.label or "missed" for each in judgements if not each.solved), "solved")


app = typer.Typer(
    cls=DefaultGroup,
    no_args_is_help=True,
    help="Measure how well a model calls tools.\n\n`callboard eval MODEL` is short for `callboard eval run MODEL`.",
)

app.command("add")(add)

COUNT: Final = 48
"""Default number of tasks. A local model needs some minutes for them."""
_CATEGORIES: Final[Mapping[str, int | None]] = {"simple_python": None, "multiple": None, "irrelevance": None}
"""Default categories of BFCL."""
_MAX_EXCLUDE: Final = 64 * 1024 * 1024
"""Maximum bytes of a file of identifiers."""


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """The options of `callboard eval MODEL`."""

    model: Annotated[
        str,
        typer.Argument(
            help="local:NAME, openai:NAME, ..., or NAME with --base-url or --via URL.",
            show_default=False,
            autocompletion=complete.models,
        ),
    ]
    suite: Annotated[
        list[str] | None,
        option(
            help="bfcl, own, recorded, a file of tasks, or a folder of BFCL's or When2Call's; repeatable.",
            show_default="bfcl",
        ),
    ] = None
    categories: Annotated[
        list[str] | None,
        option(
            help="NAME or NAME:COUNT, separated by commas; repeatable.",
            show_default="all; for bfcl simple_python, multiple and irrelevance",
        ),
    ] = None
    count: Annotated[
        int | None,
        option(min=1, help="Number of tasks, shared among the categories without a COUNT.", show_default=str(COUNT)),
    ] = None
    seed: Annotated[int, option(help="The random seed for choosing tasks.", panel=ADVANCED)] = 0
    exclude: Annotated[
        list[str] | None,
        option(help="Skip the tasks of this file: identifiers, or the output of --json; repeatable.", panel=ADVANCED),
    ] = None
    variants: Annotated[
        list[str] | None,
        option(
            help="Facts such as 'mode=native|validated dialect=json|hermes', or default, native, structured, \
validated, json, grounding, confidence or all; repeatable.",
            show_default="default",
        ),
    ] = None
    via: Annotated[
        str,
        option(help="agent, gateway (as a client of callboard serve), or a URL (as a plain client).", panel=ADVANCED),
    ] = "agent"
    base_url: Annotated[str, option(help="The endpoint that the agent or the gateway sends requests to.")] = ""
    concurrency: Annotated[int, option(min=1, max=256, help="Number of concurrent tasks.", panel=ADVANCED)] = 1
    timeout: Annotated[
        float, option(min=0.001, help="Seconds to wait for a reply; a slower one counts as failed.", panel=ADVANCED)
    ] = TIMEOUT
    max_tokens: Annotated[int, option(min=1, help="Maximum tokens of a reply.", panel=ADVANCED)] = MAX_TOKENS
    report: Annotated[str, option(help="Write an HTML page with plots and the misses to this file.")] = ""
    write_profile: Annotated[
        bool,
        option(
            "--write-profile", help="Compare --variants, or all presets, and write the best to your own callboard.toml."
        ),
    ] = False
    fresh: Annotated[
        bool, option("--fresh/--resume", help="Ask all tasks again, or only those without an answer.", panel=ADVANCED)
    ] = False
    as_json: Json = False


@app.command("run")
@takes_options(EvalOptions)
def run(options: EvalOptions) -> None:
    """Give a model tasks with known answers, and show what it solved: `callboard eval MODEL`.

    Replies use greedy decoding, and each one is saved. If you stop the command, run it again to continue: it skips
    tasks that have an answer. Ctrl-C shows the results so far.
    """
    model = MeasuredModel.from_options(options.model, base_url=options.base_url, via=options.via)
    presets = (FITTED if model.via == "agent" else (ALL,)) if options.write_profile else ()
    variants = make_variants(options.model, options.variants or presets, model.facts)
    _check_outputs(options, model, variants)
    tasks = choose_tasks(options)
    model.prepare()
    outcomes: list[TaskOutcome] = []
    progress = EvalProgress(len(tasks) * len(variants))
    runner_options = RunnerOptions(
        concurrency=options.concurrency,
        timeout=options.timeout,
        max_tokens=options.max_tokens,
        fresh=options.fresh,
        warm_up=model.is_local,
    )

    async def ask() -> None:
        file = RecordFile.of(options.model)
        identity = await model.identify()
        coming = run_tasks(
            variants,
            tasks,
            model.open,
            identity=identity,
            resolve=model.plan,
            file=file,
            connect=model.connect,
            options=runner_options,
        )
        async with aclosing(coming):
            async for outcome in coming:
                outcomes.append(outcome)
                progress.show(outcome)

    def show_partial() -> None:
        progress.stop()
        _print_report(make_report(options.model, tasks, fit_thresholds(outcomes)), options)
        typer.echo("stopped; the results are saved, and the same command continues", err=True)

    failure: CallboardError | None = None
    try:
        with progress:
            interrupt.run(ask(), show_partial)
    except CallboardError as error:
        failure = error
    report = make_report(options.model, tasks, fit_thresholds(outcomes))
    if outcomes or failure is None:
        _print_report(report, options)
    if failure is not None:
        raise failure
    if options.write_profile:
        typer.echo(_write_choice(report, model, _describe_sample(options)), err=True)


def _check_outputs(options: EvalOptions, model: MeasuredModel, variants: Sequence[Variant]) -> None:
    """Check before the first request that the results can be written. Raises CallerError."""
    if options.report:
        require_extra("board")
        page = Path(options.report)
        _check_writable(page, page.parent, "--report")
    if model.via != "agent" and any(each.fits_threshold for each in variants):
        hint = "leave --via away"
        raise CallerError("a client of a gateway sees no score of a call", path="gate_threshold=fit", hint=hint)
    if options.write_profile:
        if model.via == "client":
            hint = "leave --via away, or take --via gateway"
            raise CallerError("a plain client uses no profile", path="--write-profile", hint=hint)
        if len(variants) == 1:
            hint = "name variants that differ, such as --variants 'default|native'"
            message = "there is one way to ask, and nothing to compare it with"
            raise CallerError(message, path="--write-profile", hint=hint)

        path = Path(os.path.realpath(user_file(os.environ)))
        _check_writable(path, next(each for each in path.parents if each.exists()), "--write-profile")


def _check_writable(path: Path, folder: Path, option: str) -> None:
    if path.is_dir() or not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise CallerError(f"{path} cannot be written", path=option, hint="nothing was asked yet")


def _print_report(report: Report, options: EvalOptions) -> None:
    if options.as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        typer.echo(format_report(report))
    # After the table, so that a full disk does not hide it. A page without answers would replace an earlier one.
    if options.report and any(each.total for each in report.variants):
        subtitle = f"Seed {options.seed}, {time.strftime('%Y-%m-%d')}."
        Path(options.report).write_text(render_html(report, subtitle=subtitle), "utf-8", "xmlcharrefreplace")
        typer.echo(f"the page is {options.report}", err=True)


def _describe_sample(options: EvalOptions) -> str:
    named: Mapping[str, Sequence[object]] = {
        "--seed": [options.seed],
        "--count": [options.count or COUNT],
        "--categories": options.categories or [],
        "--suite": options.suite or ["bfcl"],
        "--exclude": options.exclude or [],
    }
    return " ".join([f"{option} {value}" for option, values in named.items() for value in values])


def _write_choice(report: Report, model: MeasuredModel, sample: str) -> str:
    resolution = resolve(model.name, model.facts)
    chosen = choose_profile(report, resolution.mode, sample)
    if chosen is None:
        return "nothing is written: fewer than two variants answered every task"
    if not chosen.facts:
        return f"{model.name} is best asked as it is: {chosen.evidence}"
    path = user_file(os.environ)
    facts = {fact: FactEvidence(value, chosen.evidence) for fact, value in chosen.facts.items()}
    personal = write_profile(path, resolution.model, facts, author="eval")
    written = {fact: value for fact, value in chosen.facts.items() if fact not in personal}
    from_now_on = replace(model, settings=load_settings({}, Path.cwd(), os.environ)).facts
    hidden = [fact for fact, value in written.items() if from_now_on.get(fact) != value]
    be = "is" if len(written) == 1 else "are"
    stay = "stays as it is" if len(personal) == 1 else "stay as they are"
    parts = [
        f"{describe_facts(written)} of {model.name} {be} written into {path}: {chosen.evidence}"
        if written
        else "nothing is written",
        *([f"your own {', '.join(personal)} {stay}"] if personal else []),
        *([f"another setting of {', '.join(hidden)} goes above it here"] if hidden else []),
    ]
    return "; ".join(parts)


def choose_tasks(options: EvalOptions) -> list[Task]:
    """Select the tasks of the suites. Raises CallerError."""
    suites = options.suite or ["bfcl"]
    categories = read_categories(options.categories or ()) or (_CATEGORIES if suites == ["bfcl"] else {})
    every_number = bool(categories) and None not in categories.values()
    return select_tasks(
        [task for suite in suites for task in load_suite(suite, [*categories] if len(suites) == 1 else ())],
        categories=categories,
        count=None if every_number else options.count or COUNT,
        seed=options.seed,
        exclude=_read_identifiers(options.exclude or ()),
    )


def _read_identifiers(files: Sequence[str]) -> set[str]:
    identifiers: set[str] = set()
    for path in map(Path, files):
        try:
            if path.stat().st_size > _MAX_EXCLUDE:
                raise CallerError("the file is too large", path=f"--exclude {path}")
            text = path.read_text("utf-8")
            is_report = text.lstrip().startswith("{")
            identifiers.update(msgspec.json.decode(text)["tasks"] if is_report else text.split())
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = "give identifiers of tasks, one a line, or what --json printed"
            raise CallerError(f"cannot be read: {error}", path=f"--exclude {path}", hint=hint) from None
    return identifiers
