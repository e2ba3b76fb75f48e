"""What a model is told before it begins.

Owns the words around a task: the instructions, the task itself, what earlier phases found, what was gathered for it.
Knows nothing of how that is gathered.
Law: it says what is, and shows no example of a conversation: examples teach models to make things up (seed 003).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from callboard.coding.encoded import carried
from callboard.coding.phases import Phase
from callboard.configuration.coding import ProjectSettings

MAX_REPOSITORY: Final = 8000
"""Characters of a repository's own instructions that are passed on."""

_INSTRUCTIONS: Final = """\
You are an autonomous coding agent. You work in a repository by calling tools to read and search code, edit files and run tests. Every call is really run, and its result comes to you in the next message. Never write results yourself, and never claim what no tool has shown."""

_TASKS: Final[Mapping[str, str]] = {
    "build": "Build this",
    "debug": "Mend this fault",
    "review": "Review this change",
    "triage": "Triage this report",
    "chat": "",
}


def instructions(project: ProjectSettings, repository: str) -> str:
    """What the supervisor says: who the model is, what the project is, what the repository's AGENTS.md asks for."""
    facts = [
        f"The project is {project.name}." if project.name else "",
        f"It is made with {', '.join(project.tech_stack)}." if project.tech_stack else "",
    ]
    parts = [_INSTRUCTIONS, " ".join([each for each in facts if each])]
    if repository:
        parts.append(f"The repository's own instructions (AGENTS.md):\n\n{repository[:MAX_REPOSITORY]}")
    return carried("\n\n".join([each for each in parts if each]))


def prompt(
    kind: str,
    task: str,
    phase: Phase,
    *,
    known: Mapping[str, str],
    gathered: Mapping[str, str],
) -> str:
    """What a phase begins with. `known` is what the phases before it said, `gathered` what was found out for it."""
    parts = [f"# {_TASKS[kind]}\n\n{task.strip()}"]
    parts += [f"# {title}\n\n{text}" for title, text in gathered.items() if text]
    parts += [f"# From the phase {name!r}\n\n{text}" for name, text in known.items() if text]
    parts.append(f"# Now: {phase.name}\n\n{phase.prompt.strip()}")
    return carried("\n\n".join(parts))


def task_text(given: Mapping[str, Any], logs: str, issue: str) -> str:
    """The task in full: what the user said, the issue, the logs."""
    said = str(given.get("description") or given.get("symptoms") or "").strip()
    parts = [said, issue, f"Logs:\n```\n{logs}\n```" if logs else ""]
    return carried("\n\n".join([each for each in parts if each]))
