"""The words around a task: the model's instructions, and the prompt that a phase begins with.

Law: prompts show no example of a conversation, because examples teach models to make things up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.phases import Phase
from callboard.coding.json_encoding import escape_surrogates
from callboard.configuration.coding import ProjectSettings

MAX_REPOSITORY: Final = 8000
"""Characters of a repository's own instructions that are passed on."""

MAX_REFUSED: Final = 600
"""Characters of why an answer was refused."""

_WITH_TOOLS: Final = """\
You are an autonomous coding agent. You work in a repository by calling tools to read and search code, edit files and run tests. Every call is really run, and its result comes to you in the next message. Never write results yourself, and never claim what no tool has shown."""

_WITHOUT_TOOLS: Final = """\
You are a programmer who works on a repository. What you need of it is shown to you. Keep to what is asked."""

_TASKS: Final[Mapping[str, str]] = {
    "build": "Build this",
    "debug": "Mend this fault",
    "review": "Review this change",
    "triage": "Triage this report",
}


def instructions(project: ProjectSettings, repository: str, *, has_tools: bool = True) -> str:
    """The system prompt: who the model is, what the project is, and `repository`, its AGENTS.md.

    The `<document>` says that AGENTS.md is a source: a call that repeats it is an echo.
    """
    facts = [
        f"The project is {project.name}." if project.name else "",
        f"It is made with {', '.join(project.tech_stack)}." if project.tech_stack else "",
    ]
    parts = [_WITH_TOOLS if has_tools else _WITHOUT_TOOLS, " ".join([each for each in facts if each])]
    if repository:
        document = f'<document title="AGENTS.md">\n{repository[:MAX_REPOSITORY]}\n</document>'
        parts.append(f"The repository's own instructions (AGENTS.md):\n\n{document}")
    return escape_surrogates("\n\n".join([each for each in parts if each]))


def phase_prompt(
    kind: str,
    task: str,
    phase: Phase,
    *,
    context: Mapping[str, str],
    summaries: Mapping[str, str],
    new_files: Sequence[str] = (),
    refused: Sequence[str] = (),
) -> str:
    """The prompt that a phase begins with.

    Args:
        kind: The kind of job.
        task: The task in full.
        phase: Its own prompt comes last.
        context: What Callboard found out for it, by title.
        summaries: What the phases before it answered, by their names.
        new_files: The files that the task names and that are not there yet.
        refused: Why the answer before was refused, where the phase begins anew.
    """
    if not phase.tools:
        # Without headings, which small models recite, and with what is to be done last, which is what they do.
        begin = f"Begin with the new file {', '.join(new_files)}." if new_files else ""
        reasons = "\n".join(refused)[:MAX_REFUSED]
        again = f"Another answer was not right: {reasons}" if refused else ""
        parts = [*context.values(), *summaries.values(), again, task.strip(), phase.prompt.strip(), begin]
        return escape_surrogates("\n\n".join([part for part in parts if part]))
    parts = [f"# {_TASKS[kind]}\n\n{task.strip()}"]
    parts += [f"# {title}\n\n{text}" for title, text in context.items() if text]
    parts += [f"# From the phase {name!r}\n\n{text}" for name, text in summaries.items() if text]
    parts.append(f"# Now: {phase.name}\n\n{phase.prompt.strip()}")
    return escape_surrogates("\n\n".join(parts))


def describe_traces(change: str, output: str | None) -> str:
    """What can be seen of a call whose outcome is unknown.

    Args:
        change: The job's change since it began, as a diff.
        output: The end of what a command had printed; None where no command was under way.
    """
    diff = f"The change so far, as a diff:\n{change}" if change else "No file has changed so far."
    if output is None:
        return diff
    return (f"The end of what it had printed:\n{output}" if output else "It had printed nothing.") + f"\n{diff}"


def task_text(request: JobRequest) -> str:
    """The task in full: the description, the issue or pull request, the logs."""
    logs = f"Logs:\n```\n{request.logs}\n```" if request.logs else ""
    parts = [request.description.strip(), request.github_text, logs]
    text = escape_surrogates("\n\n".join([each for each in parts if each]))
    return text or f"Review the branch {request.branch}."
