"""How many of the tasks in `evals/` does callboard solve, and mini-swe-agent with the same model on this machine?

usage: python -m bench.agents [--agent AGENT] [the options of evals.run]

    callboard               its commands debug, build and review, as `evals.run` has them
    mini-swe-agent          with the configuration that it comes with, which calls its tool `bash`
    mini-swe-agent, text    with the one that it comes with for models that call no tools

The model is served by llama.cpp with the same settings for all, once for mini-swe-agent and by callboard's command for
itself; nobody sets a temperature. All have the same limits of replies and seconds. mini-swe-agent need not commit: its
working tree is judged, and of a review what it wrote into `review.md` or said at the end. Its commands run unconfined,
so it is put behind bubblewrap whole; without bubblewrap, or without `.venv-evals`, callboard is measured alone.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple, get_args

from evals.attempt import Agent, Handed, Limits, Place, Result, attempt, copied, run_agent
from evals.run import callboard, cells, chosen, each_try, models, options, shares
from evals.suites import ENVIRONMENT, confinement, variables
from evals.task import Kind, Task

from callboard.providers.local.model_files import locate
from callboard.providers.local.server import EmbeddedServer

REVIEW = "review.md"


class Style(NamedTuple):
    """A configuration that mini-swe-agent comes with, and the class of models that it is for."""

    config: str
    model_class: str


def mini_swe_agent(style: Style, task: Task, model: str, place: Place, limits: Limits) -> Handed:
    """Run its command in the repository."""
    server = served(model.removeprefix("local:"))
    root, trajectory = place.fixture.root, place.home / "trajectory.json"
    settings = {
        "agent.step_limit": limits.rounds,
        "agent.wall_time_limit_seconds": int(limits.seconds),
        "model.model_kwargs.api_base": server.base_url,
        "environment.timeout": 120,
    }
    command = [
        str(ENVIRONMENT / "bin/mini"),
        "--model",
        f"openai/{model.removeprefix('local:')}",
        "--task",
        asked(task),
    ]
    command += ["--agent-class", "default", "--model-class", style.model_class, "--yolo", "--cost-limit", "0"]
    command += ["--output", str(trajectory), "--config", style.config]
    command += [part for name, value in settings.items() for part in ("--config", f"{name}={value}")]
    environment = {
        **variables(place.home, place.go_cache),
        "OPENAI_API_KEY": server.api_key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_GLOBAL_CONFIG_DIR": str(place.home / "mini"),
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2",
        "MSWEA_SILENT_STARTUP": "1",
    }
    behind = confinement(root, place.home, place.go_cache, network=True)
    reason = run_agent([*behind, *command], root, environment, place.home / "mini.log", limits)
    if not trajectory.exists():
        said = (place.home / "mini.err").read_text("utf-8", "replace").strip().splitlines()
        return Handed(reason=reason or f"no trajectory: {said[-1] if said else 'it said nothing'}")
    return handed_over(json.loads(trajectory.read_text("utf-8")), task, place, reason)


def asked(task: Task) -> str:
    """What it is given: of a review, what our command is told by its options."""
    if task.kind != "review":
        return task.description
    return (
        f"Review the changes of the branch {task.branch}, which `git diff main...{task.branch}` shows. Find the faults. "
        f"Write each into the file {REVIEW}, with its file and line and what is wrong. Change no other file."
    )


def handed_over(found: dict[str, Any], task: Task, place: Place, reason: str) -> Handed:
    """What a trajectory (mini-swe-agent-1.1) and the working tree say."""
    info, messages = found["info"], found["messages"]
    extras = [message.get("extra") or {} for message in messages]
    usages = [extra["response"].get("usage") or {} for extra in extras if isinstance(extra.get("response"), dict)]
    status = info.get("exit_status") or ""
    handed = Handed(
        reason=reason or ("" if status == "Submitted" else status),
        rounds=info["model_stats"]["api_calls"],
        calls=sum(len(extra.get("actions") or []) for extra in extras),
        input=sum(usage.get("prompt_tokens") or 0 for usage in usages),
        output=sum(usage.get("completion_tokens") or 0 for usage in usages),
    )
    if task.kind != "review":
        return handed._replace(tree=copied(place.fixture.root, place.home / "handed"))
    written = place.fixture.root / REVIEW
    said = [message.get("content") or "" for message in messages if message.get("role") == "assistant"]
    text = written.read_text("utf-8", "replace") if written.is_file() and not written.is_symlink() else ""
    return handed._replace(text="\n".join([text, info.get("submission") or "", said[-1] if said else ""]))


@cache
def served(name: str) -> EmbeddedServer:
    """A server of the model, in this process. It serves for as long as somebody holds it."""
    server = EmbeddedServer(locate(name))
    asyncio.run(server.start())
    return server


AGENTS: dict[str, Agent] = {
    "callboard": callboard,
    "mini-swe-agent": partial(mini_swe_agent, Style("mini.yaml", "litellm")),
    "mini-swe-agent, text": partial(mini_swe_agent, Style("mini_textbased.yaml", "litellm_textbased")),
}


def present(given: argparse.Namespace) -> list[str]:
    """The agents that were asked for and can be had."""
    asked_for = given.agent or [*AGENTS]
    peers = (ENVIRONMENT / "bin/mini").exists() and confinement()
    if not peers and any(each != "callboard" for each in asked_for):
        print("mini-swe-agent, or bubblewrap that it is put behind, is not here: measured without it", file=sys.stderr)
    return [each for each in asked_for if peers or each == "callboard"]


def beside(results: list[Result]) -> None:
    """Print a table for each model, a row for each agent."""
    kinds = get_args(Kind)
    tried = [each for each in results if not each.reason.startswith("skipped")]
    for model in dict.fromkeys(each.model for each in tried):
        print(f"\n{model}: shares that were solved, and means of a try\n")
        header = [*kinds, "all", "claimed", "rounds", "calls", "tokens in", "out", "seconds"]
        print(f"{'':24}" + "".join([f"{each:>11}" for each in header]))
        for agent in dict.fromkeys(each.agent for each in tried):
            mine = dict(shares([each for each in tried if (each.agent, each.model) == (agent, model)]))
            if mine["all"]:
                row = [cells(mine[kind])[0] if mine[kind] else "-" for kind in kinds]
                print(f"{agent:24}" + "".join([f"{each:>11}" for each in [*row, *cells(mine["all"])]]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", action="append", choices=[*AGENTS], help="repeatable; all")
    options(parser)
    given = parser.parse_args()
    agents = present(given)

    def tries() -> Iterator[Callable[..., Result]]:
        for model in models(given):
            for task in chosen(given):
                for name in agents:
                    for _ in range(given.tries):
                        yield partial(attempt, task, name, AGENTS[name], model)

    beside(each_try(given, tries()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
