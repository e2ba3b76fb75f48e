"""What a job hands over: a commit on its branch, and a pull request where the user asked for one."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from callboard.coding.agents.job_request import JobRequest
from callboard.coding.agents.job_tests import JobTests
from callboard.coding.agents.phase_runner import PhaseRunner
from callboard.coding.agents.pull_request import (
    drop_claims,
    format_commit_message,
    format_findings,
    format_pull_request,
)
from callboard.coding.git import github
from callboard.coding.git.tree import Tree
from callboard.coding.output import MAX_DIFF, Job, JobOutput
from callboard.coding.steps import Notice, Step


async def deliver(request: JobRequest, job: Job, tree: Tree, phases: PhaseRunner, tests: JobTests) -> JobOutput:
    """Commits what was changed, also where the job failed or was cancelled, and gives the job's output."""
    summary = next(reversed([*phases.summaries.values()]), "")
    if request.kind in ("build", "debug"):
        summary = drop_claims(summary, job.description)
    findings = phases.findings
    output = JobOutput(
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
