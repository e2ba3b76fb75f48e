"""What a job hands over, in words.

Owns the commit message, the body of a pull request, and how findings are written down. Knows nothing of git.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from callboard.coding.agents.evidence import Finding
from callboard.coding.jobs.store import Job

SUBJECT: Final = 70
"""Characters of a commit's first line."""


def commit_message(job: Job, described: str) -> str:
    """The message of the job's commit: what the model said of the change, else the task; and whose it is."""
    subject, body = _split(described)
    if not subject:
        subject, body = _subject(job.description), ""
    trailer = f"Callboard-Job: {job.id}"
    return "\n\n".join([part for part in (subject, body, trailer) if part]) + "\n"


def pull_request(
    job: Job,
    described: str,
    *,
    files: Sequence[str],
    tests: str,
    missing: Sequence[str],
    left_out: Sequence[str] = (),
    issue: int | None,
) -> tuple[str, str]:
    """Title and body of the pull request: what was asked, what changed, how it was tested, and what is missing.

    `left_out` are tests that the model wrote and that fail on the code as it is.
    """
    subject, body = _split(described)
    listed = "\n".join(f"- `{each}`" for each in files[:100]) or "- none"
    parts = [
        body,
        f"## Task\n\n{_quoted(job.description)}",
        f"## Files\n\n{listed}",
        f"## Tests\n\n{_fenced(tests) if tests else 'No tests were run.'}",
        f"## Not done\n\n{_bullets(missing)}" if missing else "",
        f"## Left out\n\nTests that fail on the code as it is:\n\n{_bullets(left_out)}" if left_out else "",
        f"Closes #{issue}" if issue is not None else "",
        f"Made by a language model ({job.model}) in job {job.id}. Read it before you merge it.",
    ]
    return subject or _subject(job.description), "\n\n".join([part for part in parts if part]) + "\n"


def told_findings(findings: Sequence[Finding]) -> str:
    """Findings for a person, a line each."""
    if not findings:
        return "No faults were found."
    return "\n".join(f"{each.file}:{each.line}: {each.severity}: {each.problem}" for each in findings)


def handed_on(text: str) -> str:
    """What a phase said, for the phases after it: without code and JSON, which look like work that is done."""
    plain = re.sub(r"```.*?(```|\Z)", "", text, flags=re.DOTALL)
    lines = [line for line in plain.splitlines() if not line.lstrip().startswith(("{", "}", "[{"))]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()[:MAX_HANDED]


MAX_HANDED: Final = 6000
"""Characters of what one phase hands on."""


def _split(described: str) -> tuple[str, str]:
    plain = re.sub(r"^```\w*\n|\n```$", "", described.strip())
    first, _, rest = plain.partition("\n")
    first = first.strip().lstrip("# ").removeprefix("Subject:").strip("*` ")
    return _subject(first), rest.strip()


def _subject(text: str) -> str:
    first = " ".join(text.split())
    if len(first) <= SUBJECT:
        return first
    return first[: SUBJECT - 3].rsplit(" ", 1)[0].rstrip(" ,;:.") + "..."


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"- {each}" for each in texts)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.strip().splitlines())


def _fenced(text: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}\n{text.strip()}\n{fence}"
