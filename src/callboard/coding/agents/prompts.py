"""What a model is told before it begins.

Owns the words around a task: the instructions, the task itself, what earlier phases found, what was gathered for it.
Knows nothing of how that is gathered.
Law: it says what is, and shows no example of a conversation: examples teach models to make things up (seed 003).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from callboard.coding.agents.phases import Phase
from callboard.coding.jobs.json_encoding import carried
from callboard.configuration.coding import ProjectSettings

MAX_REPOSITORY: Final = 8000
"""Characters of a repository's own instructions that are passed on."""

MAX_REFUSED: Final = 600
"""Characters of why an answer was not taken."""

_WITH_TOOLS: Final = """\
You are an autonomous coding agent. You work in a repository by calling tools to read and search code, edit files and run tests. Every call is really run, and its result comes to you in the next message. Never write results yourself, and never claim what no tool has shown."""

_IN_WORDS: Final = """\
You are a programmer who works on a repository. What you need of it is shown to you. Keep to what is asked."""

_TASKS: Final[Mapping[str, str]] = {
    "build": "Build this",
    "debug": "Mend this fault",
    "review": "Review this change",
    "triage": "Triage this report",
    "chat": "",
}


def instructions(project: ProjectSettings, repository: str, *, tools: bool = True) -> str:
    """What the supervisor says: who the model is, what the project is, what the repository's AGENTS.md asks for.

    `tools` says whether the model is offered any.
    """
    facts = [
        f"The project is {project.name}." if project.name else "",
        f"It is made with {', '.join(project.tech_stack)}." if project.tech_stack else "",
    ]
    parts = [_WITH_TOOLS if tools else _IN_WORDS, " ".join([each for each in facts if each])]
    if repository:
        parts.append(f"The repository's own instructions (AGENTS.md):\n\n{repository[:MAX_REPOSITORY]}")
    return carried("\n\n".join([each for each in parts if each]))


def prompt(
    kind: str,
    task: str,
    phase: Phase,
    *,
    known: Mapping[str, str],
    wanted: Sequence[str] = (),
    gathered: Mapping[str, str],
    refused: Sequence[str] = (),
) -> str:
    """What a phase begins with. `known` is what the phases before it said, `gathered` what was found out for it,
    `wanted` are files that the task names and that are not there yet. `refused` says why an answer in words was not
    taken, where this is not the first attempt.
    """
    if not phase.tools:
        # Without headings, which small models recite, and with what is to be done last, which is what they do.
        begin = f"Begin with the new file {', '.join(wanted)}." if wanted else ""
        told = "\n".join(refused)[:MAX_REFUSED]
        again = f"Another answer was not right: {told}" if refused else ""
        parts = [*gathered.values(), *known.values(), again, task.strip(), phase.prompt.strip(), begin]
        return carried("\n\n".join([part for part in parts if part]))
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
