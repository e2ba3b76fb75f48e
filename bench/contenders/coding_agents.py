"""Other agents that try the tasks of `evals/`: mini-swe-agent and aider.

Both have the settings that they come with, and those that their documentation recommends for small models on one's own
machine. Neither confines its commands, so each runs in bubblewrap. Neither has to commit: the working tree is judged.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from evals.attempt import Handed, Limits, Place, copied, run_agent
from evals.fixture import Fixture, git
from evals.suites import ENVIRONMENT, confinement, variables
from evals.task import Language, Task

from callboard.providers.local.model_files import locate
from callboard.providers.local.server import EmbeddedServer

AIDER = ENVIRONMENT.with_name(".venv-aider")
"""Environment of aider, which make installs."""
REVIEW = "review.md"
TESTS: dict[Language, str] = {"python": "python -m pytest -q", "javascript": "node --test", "go": "go test ./..."}
"""The command that aider runs after each edit."""


@cache
def served(name: str) -> EmbeddedServer:
    """Start a server of the model in this process. It serves for as long as somebody holds it."""
    server = EmbeddedServer(locate(name))
    asyncio.run(server.start())
    return server


class Style(NamedTuple):
    """A configuration that mini-swe-agent comes with, and the class of models that it is for."""

    config: str
    model_class: str


def mini_swe_agent(style: Style, task: Task, model: str, place: Place, limits: Limits) -> Handed:
    """Run the command `mini` in the repository."""
    name = model.removeprefix("local:")
    server = served(name)
    root, trajectory = place.fixture.root, place.home / "trajectory.json"
    settings = {
        "agent.step_limit": limits.rounds,
        "agent.wall_time_limit_seconds": int(limits.seconds),
        "model.model_kwargs.api_base": server.base_url,
        "environment.timeout": 120,
    }
    command = [str(ENVIRONMENT / "bin/mini"), "--model", f"openai/{name}", "--task", asked(task)]
    command += ["--agent-class", "default", "--model-class", style.model_class, "--yolo", "--cost-limit", "0"]
    command += ["--output", str(trajectory), "--config", style.config]
    command += [part for name, value in settings.items() for part in ("--config", f"{name}={value}")]
    environment = {
        **_environment(place, server),
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_GLOBAL_CONFIG_DIR": str(place.home / "mini"),
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2",
        "MSWEA_SILENT_STARTUP": "1",
    }
    reason = run_agent([*_behind(place), *command], root, environment, place.home / "mini.log", limits)
    if not trajectory.exists():
        return Handed(reason=reason or f"no trajectory: {_last_line(place.home / 'mini.err')}")
    return handed_over(json.loads(trajectory.read_text("utf-8")), task, place, reason)


def asked(task: Task) -> str:
    """Return the prompt of mini-swe-agent. For a review it says what our command learns from its options."""
    if task.kind != "review":
        return task.description
    return (
        f"Review the changes of the branch {task.branch}, which `git diff main...{task.branch}` shows. Find the faults. "
        f"Write each into the file {REVIEW}, with its file and line and what is wrong. Change no other file."
    )


def handed_over(found: dict[str, Any], task: Task, place: Place, reason: str) -> Handed:
    """Read a trajectory (mini-swe-agent-1.1) and the working tree."""
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


def aider(task: Task, model: str, place: Place, limits: Limits) -> Handed:
    """Run the command `aider` in the repository. Files that the description names are in its chat."""
    name = f"openai/{model.removeprefix('local:')}"
    server = served(model.removeprefix("local:"))
    root, history = place.fixture.root, place.home / "chat.md"
    settings = [{"name": name, "edit_format": "whole", "use_repo_map": False, "weak_model_name": name}]
    window = server.context.tokens
    about = {
        name: {"max_input_tokens": window, "max_tokens": window // 4, "litellm_provider": "openai", "mode": "chat"}
    }
    (place.home / "settings.yml").write_text(json.dumps(settings), "utf-8")  # JSON is YAML
    (place.home / "metadata.json").write_text(json.dumps(about), "utf-8")
    command = [
        str(AIDER / "bin/aider"),
        "--model",
        name,
        "--yes-always",
        "--no-show-model-warnings",
        "--map-tokens",
        "0",
    ]
    command += ["--model-settings-file", str(place.home / "settings.yml")]
    command += ["--model-metadata-file", str(place.home / "metadata.json")]
    command += ["--no-check-update", "--analytics-disable", "--no-gitignore", "--no-pretty", "--no-fancy-input"]
    command += [
        "--no-show-release-notes",
        "--chat-history-file",
        str(history),
        "--message",
        question(task, place.fixture),
    ]
    command += ["--input-history-file", str(place.home / "input.txt")]
    if task.kind == "review":
        command += ["--edit-format", "ask"]
    else:
        command += ["--edit-format", "whole", "--auto-test", "--test-cmd", TESTS[task.language]]
        command += chat_files(task)
    log = place.home / "aider.log"
    reason = run_agent([*_behind(place), *command], root, _environment(place, server), log, limits, grace=0)
    printed = log.read_text("utf-8", "replace")
    sent, received, rounds = usage(printed)
    handed = Handed(
        reason=reason or ("" if rounds else f"no reply: {_last_line(log)}"),
        rounds=rounds,
        input=sent,
        output=received,
    )
    if task.kind == "review":
        return handed._replace(text=answer(history.read_text("utf-8", "replace")) if history.exists() else "")
    return handed._replace(tree=copied(root, place.home / "handed"))


def question(task: Task, fixture: Fixture) -> str:
    """Return the prompt of aider. It runs no commands, so a review contains the change."""
    if task.kind != "review":
        return task.description
    change = git(fixture.root, "diff", f"main...{task.branch}")
    return (
        f"Review the changes of the branch {task.branch}. Find the faults. Name each with its file and line and what "
        f"is wrong.\n\n{change}"
    )


def chat_files(task: Task) -> list[str]:
    """The options that add the files that the description names, those that must not change for reading alone."""
    named = [path for path in task.repository if path in task.description]
    return [part for path in named for part in ("--read" if path in task.protected else "--file", path)]


def usage(printed: str) -> tuple[int, int, int]:
    """Read the tokens sent and received, which aider rounds, and the number of replies."""
    found = re.findall(r"^Tokens: ([\d.,]+k?) sent,.*?([\d.,]+k?) received", printed, re.MULTILINE)
    return sum(tokens(sent) for sent, _ in found), sum(tokens(received) for _, received in found), len(found)


def tokens(text: str) -> int:
    """Read a number such as 1.2k."""
    number = float(text.rstrip("k").replace(",", ""))
    return round(number * 1000) if text.endswith("k") else round(number)


def answer(history: str) -> str:
    """The replies of a chat: without the questions and the notices of aider."""
    return "\n".join([line for line in history.splitlines() if not line.startswith(("####", ">", "# aider"))])


def _environment(place: Place, server: EmbeddedServer) -> dict[str, str]:
    return {
        **variables(place.home, place.go_cache),
        "OPENAI_API_BASE": server.base_url,
        "OPENAI_API_KEY": server.api_key,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PYTHONUNBUFFERED": "1",
    }


def _behind(place: Place) -> Sequence[str]:
    return confinement(place.fixture.root, place.home, place.go_cache, readable=[AIDER], network=True)


def _last_line(file: Path) -> str:
    lines = file.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
