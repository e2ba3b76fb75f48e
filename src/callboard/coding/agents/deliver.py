"""The results of a job: a commit on its branch, the commit message, the findings of a review, and a pull request."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.job_tests import JobTests
from callboard.coding.agents.prompts import fence
from callboard.coding.git import github
from callboard.coding.git.tree import Tree
from callboard.coding.job import MAX_DIFF, Finding, Job, JobOutput, Notice, PullRequest, Step

if TYPE_CHECKING:
    from callboard.coding.agents.phase_runner import PhaseRunner

SUBJECT: Final = 70
"""Characters of a commit's first line."""
MAX_SUMMARY: Final = 6000
"""Characters of an answer that the phases after it get."""

_SENTENCE: Final = re.compile(r"(?:[^\n.!?]|[.!?](?=\S))+[.!?]?[ \t]*")
_DONE: Final = re.compile(
    r"\W*(?:the )?task(?:[ _](?:is|has been))?[ _](?:now |successfully )?(?:complete|done|finish)", re.IGNORECASE
)
_PULL_REQUEST: Final = re.compile(
    r"\b(?:PR|MR|(?:pull|merge)[- _]requests?|pushed)\b|/(?:pull|merge_requests)/\d", re.IGNORECASE
)
_PAST: Final = re.compile(r"\b(?:(?:creat|open|submitt|rais|fil|push|merg|publish|updat)ed|made|sent)\b", re.IGNORECASE)
_NUMBER: Final = re.compile(r"(?:#|\b(?:PR|MR|request) #?|/)(\d+)", re.IGNORECASE)
_COMMIT: Final = re.compile(r"\bcommit(?:ted)?\b", re.IGNORECASE)
_HASH: Final = re.compile(r"\b(?=[a-f]*\d)[0-9a-f]{7,40}\b")


def format_commit_message(job: Job, summary: str) -> str:
    """Return the message of the job's commit: the model's summary of the change, else the task; and the job's name."""
    subject, body = _split(summary)
    if not subject:
        subject, body = _shorten(job.description), ""
    trailer = f"Callboard-Job: {job.id}"
    return "\n\n".join([part for part in (subject, body, trailer) if part]) + "\n"


def format_pull_request(
    job: Job,
    summary: str,
    *,
    files: Sequence[str],
    tests: str,
    missing: Sequence[str],
    dropped_tests: Sequence[str] = (),
    mutants: tuple[int, int] = (0, 0),
    issue: int | None,
) -> PullRequest:
    """Return the pull request: what was asked, what changed, how it was tested, and what is missing.

    `dropped_tests` are tests that the model wrote and that fail on the code as it is. `mutants` says how many small
    mistakes in the code the new tests notice, and how many there were.
    """
    subject, body = _split(summary)
    quoted = "\n".join(f"> {line}" for line in job.description.strip().splitlines())
    listed = "\n".join(f"- `{each}`" for each in files[:100]) or "- none"
    parts = [
        body,
        f"## Task\n\n{quoted}",
        f"## Files\n\n{listed}",
        f"## Tests\n\n{fence(tests.strip()) if tests else 'No tests were run.'}",
        f"The new tests notice {mutants[0]} of {mutants[1]} small mistakes in the code." if mutants[1] else "",
        f"## Not done\n\n{_bullets(missing)}" if missing else "",
        f"## Left out\n\nTests that fail on the code as it is:\n\n{_bullets(dropped_tests)}" if dropped_tests else "",
        f"Closes #{issue}" if issue is not None else "",
        f"Made by a language model ({job.model}) in job {job.id}. Read it before you merge it.",
    ]
    return PullRequest(subject or _shorten(job.description), "\n\n".join([part for part in parts if part]) + "\n")


def drop_claims(summary: str, task: str) -> str:
    """A summary without the sentences that say that the task is complete, or that report a pull request or a commit.

    While the model writes its summary, none exists. A pull request whose number the task names may be mentioned.
    """
    known = {*re.findall(r"\d+", task)}
    text = _SENTENCE.sub(lambda match: "" if _is_claim(match[0], known) else match[0], summary)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _is_claim(sentence: str, known: set[str]) -> bool:
    if _DONE.match(sentence) or (_COMMIT.search(sentence) and _HASH.search(sentence)):
        return True
    is_past = _PAST.search(sentence) is not None
    return bool(_PULL_REQUEST.search(sentence)) and (is_past or not {*_NUMBER.findall(sentence)} <= known)


def format_findings(findings: Sequence[Finding]) -> str:
    """Return the findings, a line each."""
    if not findings:
        return "No faults were found."
    return "\n".join(f"{each.file}:{each.line}: {each.severity}: {each.problem}" for each in findings)


def strip_code(answer: str) -> str:
    """Return an answer for later phases, without code and JSON, which look like finished work."""
    plain = re.sub(r"```.*?(```|\Z)", "", answer, flags=re.DOTALL)
    lines = [line for line in plain.splitlines() if not line.lstrip().startswith(("{", "}", "[{"))]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()[:MAX_SUMMARY]


def _split(summary: str) -> tuple[str, str]:
    """Return the subject and the body of a commit message."""
    plain = re.sub(r"^```\w*\n|\n```$", "", summary.strip())
    first, _, rest = plain.partition("\n")
    first = first.strip().lstrip("# ").removeprefix("Subject:").strip("*` ")
    return _shorten(first), rest.strip()


def _shorten(text: str) -> str:
    first = " ".join(text.split())
    if len(first) <= SUBJECT:
        return first
    return first[: SUBJECT - 3].rsplit(" ", 1)[0].rstrip(" ,;:.") + "..."


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"- {each}" for each in texts)


async def deliver(request: JobRequest, job: Job, tree: Tree, phases: PhaseRunner, tests: JobTests) -> JobOutput:
    """Commits what was changed, also where the job failed or was cancelled, and gives the job's output."""
    summary = next(reversed([*phases.summaries.values()]), "")
    if request.kind in ("build", "debug"):
        summary = drop_claims(summary, job.description)
    findings = phases.findings
    models = phases.memory.models if len(phases.memory.models) > 1 else ()
    job = replace(job, model=" and ".join([each.model for each in models]) or job.model)
    output = JobOutput(
        models=models,
        summary=summary if findings is None else format_findings(findings),
        missing=phases.missing,
        findings=None if findings is None else tuple(findings),
    )
    if request.kind not in ("build", "debug"):
        return output
    message = format_commit_message(job, summary)
    await tree.commit(message if phases.is_finished else f"Not finished: {message}")
    await tree.deliver()
    changes = await tree.changes()
    patch = str(tree.result_patch) if tree.result_patch and changes.diff else ""
    return replace(
        output,
        branch=tree.branch if changes.commits else "",
        commits=tuple([each.id for each in changes.commits]),
        files=tuple(changes.files),
        diff=changes.diff[:MAX_DIFF],
        tests=tests.headline,
        pull_request=format_pull_request(
            job,
            summary,
            files=changes.files,
            tests=tests.transcript,
            missing=phases.missing,
            dropped_tests=phases.dropped_tests,
            mutants=phases.memory.mutants,
            issue=request.issue,
        ),
        patch=patch,
    )


async def publish(request: JobRequest, tree: Tree, output: JobOutput, emit: Callable[[Step], None]) -> JobOutput:
    """Pushes the branch and opens the pull request, where the user asked for it. Raises CallerError."""
    pull_request = output.pull_request
    if pull_request is None or not (request.push or request.open_pull_request):
        return output
    settings = request.settings.coding.git
    await tree.push(settings.remote)
    emit(Notice(f"pushed {tree.branch} to {settings.remote}"))
    if not request.open_pull_request:
        return output
    url = await github.open_pull_request(
        request.directory,
        branch=tree.branch,
        title=pull_request.title,
        body=pull_request.body,
        draft=settings.always_draft_pr,
    )
    emit(Notice(f"opened {url}"))
    return replace(output, pull_request_url=url)
