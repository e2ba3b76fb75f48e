"""How many of the tasks does `callboard` solve?

usage: python -m evals.run [--kind KIND] [--language LANGUAGE] [--fault FAULT] [--model MODEL] [--tries N] [--held-back]

Each try is a fresh repository in a temporary folder, where the command runs as a user would have run it: nothing of
this machine's settings is read, and only the models' files are shared. A task is solved where what the agent
committed, or said of a branch, passes `evals.check`, whatever the agent says of it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from subprocess import CalledProcessError
from tempfile import TemporaryDirectory
from typing import Any, get_args

import msgspec

from callboard.errors import CallboardError
from callboard.providers.local.model_files import directory, locate
from evals.attempt import Handed, Limits, Place, Result, attempt, run_agent
from evals.suites import variables
from evals.task import HELD_BACK, TASKS, Fault, Kind, Language, Task, load_tasks

MODELS = ("local:qwen2.5-coder-0.5b", "local:qwen2.5-coder-1.5b")
COMMANDS: dict[Kind, tuple[str, str]] = {
    "fix": ("debug", "--symptoms"),
    "tests": ("build", "--description"),
    "review": ("review", "--branch"),
    "function": ("build", "--description"),
}
"""The command of each kind, and the option that takes the task."""


def callboard(task: Task, model: str, place: Place, limits: Limits, escalate: str = "") -> Handed:
    """Run our command in the repository; the model `escalate` takes over if the other one is stuck."""
    command, option = COMMANDS[task.kind]
    given = task.branch if task.kind == "review" else task.description
    script = str(Path(sys.executable).with_name("callboard"))
    arguments = [command, option, given, "--model", model, "--max-rounds", str(limits.rounds), "--json"]
    arguments += ["--escalate", escalate] if escalate else []
    log = place.home / "callboard.jsonl"
    reason = run_agent([script, *arguments], place.fixture.root, _environment(place, limits), log, limits)
    job = last_job(log.read_text("utf-8", "replace"))
    if job is None:
        said = log.with_suffix(".err").read_text("utf-8", "replace").strip().splitlines()
        return Handed(reason=reason or f"no job: {said[-1] if said else 'it said nothing'}")
    if not place.fixture.untouched:
        return Handed(reason="the user's tree is not as it was")
    output: dict[str, Any] = job.get("output") or {}
    usage: dict[str, int] = job.get("usage") or {}
    handed = Handed(
        reason=reason or _ending(job),
        rounds=job.get("rounds", 0),
        calls=job.get("calls", 0),
        input=usage.get("input", 0),
        output=usage.get("output", 0),
    )
    if task.kind == "review":
        return handed._replace(text=_review(output))
    return _committed(output.get("branch") or "", place, handed)


def _environment(place: Place, limits: Limits) -> dict[str, str]:
    """A user's who has one setting, the time that a job may take; keys of providers are passed on."""
    data, settings = place.home / "data" / "callboard", place.home / "config" / "callboard"
    data.mkdir(parents=True)
    settings.mkdir(parents=True)
    (data / "models").symlink_to(directory())
    (settings / "callboard.toml").write_text(
        f"[coding.limits]\nmax_task_duration_minutes = {limits.seconds / 60}\n", "utf-8"
    )
    keys = {name: value for name, value in os.environ.items() if name.endswith(("_API_KEY", "_BASE_URL"))}
    return {
        **variables(place.home, place.go_cache),
        **keys,
        "XDG_DATA_HOME": str(data.parent),
        "XDG_CONFIG_HOME": str(settings.parent),
    }


def last_job(printed: str) -> dict[str, Any] | None:
    """The last event, if it is the job."""
    for line in reversed(printed.splitlines()):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        return event if isinstance(event, dict) and event.get("type") == "job" else None
    return None


def _ending(job: dict[str, Any]) -> str:
    """Why a job did not hand over what was asked; empty where it says that it did."""
    missing = (job.get("output") or {}).get("missing")
    if job.get("state") == "completed" and not missing:
        return ""
    return str(job.get("reason") or job.get("error") or missing or job.get("state"))


def _review(output: dict[str, Any]) -> str:
    findings = output.get("findings")
    return "\n".join([str(output.get("summary") or ""), *([json.dumps(findings)] if findings else [])])


def _committed(branch: str, place: Place, handed: Handed) -> Handed:
    """Return the files of the branch. The working tree is not read."""
    try:
        if not branch or not place.fixture.commits(branch):
            return handed._replace(reason=f"nothing was committed{f' ({handed.reason})' if handed.reason else ''}")
        place.fixture.export(branch, tree := place.home / "handed")
    except CalledProcessError as error:
        return handed._replace(reason=f"{branch}: {error.stderr.strip()}")
    return handed._replace(tree=tree)


def shares(results: list[Result]) -> Iterator[tuple[str, list[Result]]]:
    """The results by kind and language, by kind, and all."""
    for kind in get_args(Kind):
        for language in get_args(Language):
            yield f"{kind}, {language}", [each for each in results if (each.kind, each.language) == (kind, language)]
        yield kind, [each for each in results if each.kind == kind]
    yield "all", results


def table(results: list[Result]) -> None:
    """Print the shares that were solved and claimed, and means of a try."""
    header = ("solved", "claimed", "rounds", "calls", "tokens in", "out", "seconds")
    for agent, model in dict.fromkeys((each.agent, each.model) for each in results):
        mine = [each for each in results if (each.agent, each.model) == (agent, model)]
        print(f"\n{agent}, {model}: shares, and means of a try\n")
        print(f"{'':24}" + "".join([f"{each:>12}" for each in header]))
        for name, some in shares([each for each in mine if not each.reason.startswith("skipped")]):
            if some:
                print(f"{name:24}" + "".join([f"{cell:>12}" for cell in cells(some)]))


def cells(some: list[Result]) -> list[str]:
    """Return the cells of a row: the solved results, those that the agent reported as solved, and means."""
    shares = [f"{sum(getattr(each, name) for each in some)}/{len(some)}" for name in ("solved", "claimed")]
    means = {"rounds": 1, "calls": 1, "input": 0, "output": 0, "seconds": 0}
    return shares + [
        f"{sum(getattr(each, name) for each in some) / len(some):,.{digits}f}" for name, digits in means.items()
    ]


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a run."""
    part = "repeatable; tasks with this in their name, such as go/"
    parser.add_argument("--name", action="append", metavar="PART", help=part)
    parser.add_argument("--kind", choices=get_args(Kind))
    parser.add_argument("--language", choices=get_args(Language))
    parser.add_argument("--fault", choices=get_args(Fault), help="tasks with this fault")
    parser.add_argument(
        "--held-back", action="store_true", help="the tasks that nobody tunes on, instead of the others"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="at most N tasks, of every kind and language by turns")
    parser.add_argument("--model", action="append", help=f"repeatable; {' and '.join(MODELS)}")
    parser.add_argument("--tries", type=int, default=1, metavar="N", help="of each task")
    parser.add_argument("--max-rounds", type=int, default=Limits().rounds, metavar="N", help="replies of the model")
    parser.add_argument("--seconds", type=float, default=Limits().seconds, help="of each try")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every result there")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep repositories and transcripts there")


def chosen(given: argparse.Namespace) -> list[Task]:
    """The tasks that were asked for. Exits where there is none."""
    tasks = [
        task
        for task in load_tasks(HELD_BACK if given.held_back else TASKS)
        if any(part in task.name for part in given.name or [""])
        and given.kind in {None, task.kind}
        and given.language in {None, task.language}
        and given.fault in {None, task.fault}
    ]
    return in_turns(tasks)[: given.limit] or sys.exit("no such task")


def in_turns(tasks: list[Task]) -> list[Task]:
    """Order tasks so that each kind and language comes once before one of them comes again."""
    seen = Counter[tuple[Kind, Language]]()
    turns = {}
    for task in tasks:
        seen[task.kind, task.language] += 1
        turns[task.name] = seen[task.kind, task.language]
    return sorted(tasks, key=lambda task: turns[task.name])


def models(given: argparse.Namespace) -> list[str]:
    """The models that were asked for. Exits where a local one is not here."""
    asked = given.model or [*MODELS]
    for each in asked:
        if each.startswith("local:"):
            try:
                locate(each.removeprefix("local:"))
            except CallboardError as error:
                sys.exit(str(error))
    return asked


def each_try(given: argparse.Namespace, tries: Iterable[Callable[..., Result]]) -> list[Result]:
    """Make the tries with a line for each, and a file that is whole after each."""
    results: list[Result] = []
    with TemporaryDirectory(prefix="callboard-go-") as go_cache:
        for one in tries:
            result = one(limits=Limits(given.max_rounds, given.seconds), go_cache=Path(go_cache), keep=given.keep)
            results.append(result)
            print(line(result), flush=True)
            if given.json:
                given.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    return results


def line(result: Result) -> str:
    """A result for a person."""
    word = "solved" if result.solved else "-"
    numbers = f"{result.rounds:3} rounds {result.input + result.output:8,} tokens {result.seconds:6.1f} s"
    return f"{result.agent:16} {result.model:26} {result.kind:7} {result.task:28} {word:7} {numbers}  {result.reason[:160]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument(
        "--escalate", default="", metavar="MODEL", help="a stronger model that takes over if the model is stuck"
    )
    given = parser.parse_args()
    agent = partial(callboard, escalate=given.escalate)

    def tries() -> Iterator[Callable[..., Result]]:
        for model in models(given):
            for task in chosen(given):
                for _ in range(given.tries):
                    yield partial(attempt, task, "callboard", agent, model)

    table(each_try(given, tries()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
