"""How many of the tasks in `evals/` do Callboard, mini-swe-agent and aider solve with the same model on this machine?

usage: python -m bench.agents [--agent AGENT] [the options of evals.run]

    callboard               its commands debug, build and review, as `evals.run` runs them
    mini-swe-agent          with the configuration that it comes with, which calls its tool `bash`
    mini-swe-agent, text    with the one that it comes with for models that call no tools
    aider                   with whole files as edits, and the tests after each edit

llama.cpp serves the model with the same settings for all: once for the peers, and by callboard's command for itself.
The run sets no temperature: each agent has its own. All have the same limits of seconds, and of replies if they have
one: aider has its own.
Peers run in bubblewrap. Without it, or without their environment, the others are measured alone.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import get_args

from bench.contenders.coding_agents import AIDER, Style, aider, mini_swe_agent
from evals.attempt import Agent, Result, attempt
from evals.run import callboard, chosen, each_try, models, options
from evals.suites import ENVIRONMENT, confinement
from evals.task import Kind

from callboard.evaluation.statistics import wilson_interval

AGENTS: dict[str, Agent] = {
    "callboard": callboard,
    "mini-swe-agent": partial(mini_swe_agent, Style("mini.yaml", "litellm")),
    "mini-swe-agent, text": partial(mini_swe_agent, Style("mini_textbased.yaml", "litellm_textbased")),
    "aider": aider,
}
PROGRAMS: dict[str, Path] = {
    "mini-swe-agent": ENVIRONMENT / "bin/mini",
    "mini-swe-agent, text": ENVIRONMENT / "bin/mini",
    "aider": AIDER / "bin/aider",
}


def present(names: list[str]) -> list[str]:
    """Return the agents that are installed; name the others on stderr."""
    found = [each for each in names if each not in PROGRAMS or (PROGRAMS[each].exists() and confinement())]
    for each in names:
        if each not in found:
            print(f"{each}, or bubblewrap that it runs in, is not installed: measured without it", file=sys.stderr)
    return found


def beside(results: list[Result]) -> None:
    """Print a row for each agent, model and kind: the share that was solved with its Wilson interval, and means."""
    tried = [each for each in results if not each.reason.startswith("skipped")]
    print(f"\n{'agent':22}{'model':28}{'kind':10}{'solved':>24}{'claimed':>9}{'tokens':>9}{'seconds':>9}")
    for agent, model in dict.fromkeys((each.agent, each.model) for each in tried):
        mine = [each for each in tried if (each.agent, each.model) == (agent, model)]
        for kind in (*get_args(Kind), "all"):
            if some := [each for each in mine if kind in {each.kind, "all"}]:
                print(f"{agent:22}{model:28}{kind:10}{row(some)}")


def row(some: list[Result]) -> str:
    """Format the results of one agent, model and kind."""
    solved, total = sum(each.solved for each in some), len(some)
    low, high = wilson_interval(solved, total)
    share = f"{solved}/{total} ({low:.0%} to {high:.0%})"
    tokens = sum(each.input + each.output for each in some) / total
    seconds = sum(each.seconds for each in some) / total
    return f"{share:>24}{sum(each.claimed for each in some):>9}{tokens:>9,.0f}{seconds:>9.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", action="append", choices=[*AGENTS], help="repeatable; all")
    options(parser)
    given = parser.parse_args()
    agents = present(given.agent or [*AGENTS])

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
