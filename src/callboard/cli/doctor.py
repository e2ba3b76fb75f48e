"""`callboard doctor`: examine a backend as clients would use it, or the sandboxes of this machine."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self

import msgspec
import typer

from callboard.cli import interrupt
from callboard.cli.command_group import ADVANCED
from callboard.cli.models import pull_with_progress
from callboard.cli.options import Json, option, takes_options
from callboard.cli.serve import BackendOptions
from callboard.cli.settings import settings_here
from callboard.configuration import Settings, user_file
from callboard.configuration.edit_config import FactEvidence, write_profile
from callboard.extras import require_extra
from callboard.profiles import Examination, resolve
from callboard.providers.backend_info import describe_change
from callboard.providers.local.memory import read_memory
from callboard.providers.local.recommendation import CONTEXT, recommend
from callboard.sandbox.detect import SandboxReport, SandboxRow, examine_sandboxes
from callboard.servers.gateway.configuration import load_gateway_settings
from callboard.servers.gateway.doctor.probes import DoctorBudget
from callboard.text.display import display

if TYPE_CHECKING:
    from callboard.servers.gateway.doctor.run import DoctorReport, ReportRow


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(BackendOptions):
    """The options of `callboard doctor`."""

    model: Annotated[str, option(help="The model; by default the first that the backend lists.")] = ""
    sandbox: Annotated[
        bool, option("--sandbox", help="Check the sandbox instead: which one is used, why, and what it leaves open.")
    ] = False
    quick: Annotated[bool, option("--quick", help="Send only the requests that clients send, about nine.")] = False
    write: Annotated[
        bool, option("--write", help="Write the facts, with their evidence, to your own callboard.toml.")
    ] = False
    seconds: Annotated[
        float, option(min=1, help="Seconds for all checks. Remaining checks are skipped.", panel=ADVANCED)
    ] = 110.0
    requests: Annotated[int, option(min=1, help="Maximum requests. Remaining checks are skipped.", panel=ADVANCED)] = (
        150
    )
    as_json: Json = False


@takes_options(DoctorOptions)
def doctor(options: DoctorOptions) -> None:
    """Check whether Codex, Claude Code, Gemini CLI and Qwen Code work with a backend.

    Without --backend and --local, it recommends a model for the memory of this machine.

    First it sends the clients' requests through a gateway in this process, and reports what works, what is lost and
    what helps. Then it asks the backend directly: does it enforce schemas, return log-probabilities, continue a
    prefill? With --write these checks come first. The exit code is 0 if every client can work; with --sandbox, if
    jobs can run commands.
    """
    if options.sandbox:
        _print_sandboxes(as_json=options.as_json)
    if not (options.backend or options.local):
        _print_recommendation(as_json=options.as_json)

    require_extra("gateway")
    from callboard.servers.gateway.doctor.run import FACTS_FIRST, GROUPS, examine  # noqa: PLC0415

    settings = load_gateway_settings("", {}, options.settings()).backends[0]
    file_settings = settings_here()  # read first, to report mistakes in a file before any request
    local, as_json = options.local, options.as_json
    url = settings.display_url if settings.url else f"local:{local}"
    if local and not local.endswith(".gguf"):
        pull_with_progress(local)
    with _Progress(quiet=as_json) as progress:
        examination = examine(
            settings,
            options.model,
            progress.start_step,
            progress.end_step,
            quick=options.quick,
            groups=FACTS_FIRST if options.write else GROUPS,
            budget=DoctorBudget(options.seconds, options.requests),
        )

        def tell_stopped() -> None:
            progress.stop()
            typer.echo("stopped; nothing was written" if options.write else "stopped", err=True)

        report = interrupt.run(examination, tell_stopped)
    if as_json:
        report_object = {**msgspec.to_builtins(report), "works": report.works}
        typer.echo(msgspec.json.format(msgspec.json.encode(report_object)))
    else:
        typer.echo(_advice(report, f"--backend {url}" if settings.url else f"--local {local}"))
    if line := _compare_with_file(report, url, file_settings):
        typer.echo(line, err=True)
    if options.write:
        typer.echo(_write_facts(report, url), err=True)
    raise typer.Exit(0 if report.works else 1)


def _compare_with_file(report: DoctorReport, url: str, settings: Settings) -> str:
    examined = resolve(report.model, settings.profile(report.model)).examined
    if examined is None or len(report.backend) < 2:
        return ""
    change = describe_change(examined, url, report.version)
    return display(f"the facts in callboard.toml: {change or f'of {examined.date}'}")


def _write_facts(report: DoctorReport, url: str) -> str:
    if not report.facts:
        return f"nothing was written: the answers of {report.model} show no facts"
    path = user_file(os.environ)
    facts = {fact: FactEvidence(value, report.evidence[fact]) for fact, value in report.facts.items()}
    examined = Examination(url=url, version=report.version, date=time.strftime("%Y-%m-%d"))
    personal = write_profile(path, report.model, facts, examined=examined, questions=report.asked_facts)
    written = [fact for fact in sorted(report.facts) if fact not in personal]
    be = "is" if len(written) == 1 else "are"
    lines = [f"{', '.join(written)} of {report.model} {be} in {path}"] if written else []
    if personal:
        stay = "stays as it is" if len(personal) == 1 else "stay as they are"
        lines.append(f"your own {', '.join(personal)} of {report.model} {stay}")
    return "; ".join(lines)


def _print_sandboxes(*, as_json: bool) -> NoReturn:
    report = asyncio.run(examine_sandboxes())
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report)))
    else:
        typer.echo("\n".join(_sandbox_lines(report)))
    raise typer.Exit(0 if report.unattended else 1)


def _print_recommendation(*, as_json: bool) -> NoReturn:
    """Print a model that fits into the memory of this machine, with the commands that pull and start it."""
    memory = read_memory()
    model = recommend(memory)
    commands = [f"callboard models pull {model.pull}", f"callboard launch codex --local {model.name}"]
    if as_json:
        table = {"memory": memory, "recommended": model, "commands": commands}
        typer.echo(msgspec.json.format(msgspec.json.encode(table)))
        raise typer.Exit
    free = f"{memory.free / 1e9:.1f} of {memory.total / 1e9:.1f} GB of memory are free"
    typer.echo(f"no backend was named; this machine: {free if memory.total else 'its memory is unknown'}")
    typer.echo(f"recommended: {model.name}, a file of {model.size / 1e9:.1f} GB and {CONTEXT:,} tokens of context")
    typer.echo(f"  {model.result} ({model.source}, {model.date})")
    for command in commands:
        typer.echo(f"  {command}")
    typer.echo("to check a backend: callboard doctor --backend URL, or --local NAME", err=True)
    raise typer.Exit


def _sandbox_lines(report: SandboxReport) -> list[str]:
    lines = [line for row in report.sandboxes for line in _sandbox_row(row)]
    lines += ["", report.summary]
    return [*lines, f"helps: {report.hint}"] if report.hint else lines


def _sandbox_row(row: SandboxRow) -> list[str]:
    begin = f"{row.name:<{_NAME}} {row.state:<{_SANDBOX_STATE}}"
    details = [
        ": ".join(filter(None, (row.origin, row.reason))),
        *([f"started: {row.way}"] if row.way else []),
        *(f"does not hold: {each}" for each in row.open),
        *(f"does not hide: {each}" for each in row.visible),
    ]
    indent = " " * (_NAME + _SANDBOX_STATE + 1)
    return [f"{begin} {details[0]}".rstrip(), *(f"{indent} {each}" for each in details[1:])]


class _Progress:
    """Shows each row when it is ready. A terminal also shows the current check and its time below the rows."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._began = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Self:
        if typer.get_text_stream("stderr").isatty():
            from rich.console import Console  # noqa: PLC0415  # rich costs 50 ms
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

            columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("", total=None)
            self._bar.start()
        return self

    def stop(self) -> None:
        """Stop drawing, so that others can use the terminal."""
        if self._bar is not None:
            self._bar.stop()

    def __exit__(self, *_: object) -> None:
        self.stop()
        typer.echo(f"took {time.monotonic() - self._began:.0f} s", err=True)

    def start_step(self, what: str) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=what)
        else:
            typer.echo(what, err=True)

    def end_step(self, row: ReportRow) -> None:
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.stop()  # erases the line below: the row may go to the same terminal
        typer.echo("\n".join(_lines(row)))
        if self._bar is not None:
            self._bar.start()


def _lines(row: ReportRow) -> list[str]:
    begin = f"{row.name:<{_NAME}}"
    lines = [f"{begin} {row.state:<{_STATE}} {row.detail}".rstrip()]
    if row.dropped:
        lines.append(f"{'':<{_NAME + _STATE + 1}} lost: {', '.join(row.dropped)}")
    if row.fix:
        lines.append(f"{'':<{_NAME + _STATE + 1}} helps: {row.fix}")
    return lines


_NAME, _STATE, _SANDBOX_STATE = 26, 9, 11


def _advice(report: DoctorReport, where: str) -> str:
    if report.works:
        return f"\nevery client can work with {report.model}"
    if not report.clients:
        return "\nno client can work: the backend does not answer"
    if any(row.state == "not asked" for row in report.clients):
        return "\nnot every client was checked: raise --seconds or --requests"
    if report.flags:
        return f"\nclients that can work need\ncallboard serve {where} {' '.join(report.flags)}"
    return "\nnot every client can work, and no flag helps"
