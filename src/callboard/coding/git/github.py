"""Issues and pull requests, through GitHub's own program `gh`, if it is installed and signed in.

Law: we write only what the user asked for by name. `gh` asks git about the repository. That git is restricted like
ours: it reads only the configuration that `settings.py` lists, and runs no hook, filter or monitor. `gh` gets only the
variables below, and no program that it starts comes from a repository.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from callboard.coding.git.process import git_environment
from callboard.coding.git.repository import find_repository
from callboard.errors import CallerError
from callboard.programs import find_program

MAX_TEXT: Final = 100_000
"""Characters of an issue that are read."""
SECONDS: Final = 60.0

_INHERITED: Final = (
    *("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_HOST", "GH_CONFIG_DIR"),
    *("GH_REPO", "XDG_STATE_HOME", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS", "HTTP_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""Environment variables for `gh` in addition to git's: its host and its credentials."""
_QUIET: Final = {
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "GH_PAGER": "cat",
    "GH_EDITOR": "false",
    "NO_COLOR": "1",
}


async def issue_text(number: int, directory: Path) -> str:
    """Title, text and comments of an issue, whole. Raises CallerError."""
    issue = await _gh(directory, f"--issue {number}", "issue", "view", str(number), "--json", "title,body,comments")
    return _format_thread(issue)


async def pull_request_of(number: int, directory: Path) -> tuple[str, str]:
    """Return the branch of a pull request, and its title, text and comments. Raises CallerError."""
    pull_request = await _gh(
        directory, f"--pr {number}", "pr", "view", str(number), "--json", "title,body,comments,headRefName"
    )
    return str(pull_request.get("headRefName", "")), _format_thread(pull_request)


async def open_pull_request(directory: Path, *, branch: str, title: str, body: str, draft: bool) -> str:
    """Open a pull request for a pushed branch and return its address, even if it is already open.

    An earlier process may have opened it and died before it recorded that. Raises CallerError.
    """
    arguments = ["pr", "create", "--head", branch, "--title", title, "--body-file", "-"]
    try:
        output = await _run(directory, "--pr", [*arguments, *(["--draft"] if draft else [])], body.encode())
    except CallerError:
        if url := await _find_pull_request(directory, branch):
            return url
        raise
    return output.decode("utf-8", "replace").strip()


async def _find_pull_request(directory: Path, branch: str) -> str:
    """Return the address of the pull request of a branch, if there is one that is open."""
    with suppress(CallerError):
        view = await _gh(directory, "--pr", "pr", "view", branch, "--json", "url,state")
        if view.get("state") == "OPEN":
            return str(view.get("url", ""))
    return ""


async def _gh(directory: Path, path: str, *arguments: str) -> dict[str, Any]:
    output = await _run(directory, path, arguments)
    try:
        answer = json.loads(output)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise CallerError("gh gave no JSON", path=path)
    return answer


async def _run(directory: Path, path: str, arguments: Any, stdin: bytes = b"") -> bytes:
    program = find_program("gh")
    if program is None:
        raise CallerError("gh is not installed", path=path, hint="install it, or give the text in the command")
    repository = await find_repository(directory)
    if repository is None:
        raise CallerError("gh needs a git repository", path=str(directory), hint="git init makes one")
    with repository.environment(await repository.settings(), online=True) as location:
        own = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        environment = {**git_environment(online=True), **location, **own, **_QUIET}
        return await _run_command([program, *arguments], directory, environment, path, stdin)


async def _run_command(
    command: Sequence[str], directory: Path, environment: Mapping[str, str], path: str, stdin: bytes
) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, error = await process.communicate(stdin)
    except TimeoutError:
        raise CallerError(f"gh did not answer within {SECONDS:g} s", path=path) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        message = error.decode("utf-8", "replace").strip()[:500]
        raise CallerError(f"gh: {message}", path=path, hint="gh auth status; or give the text in the command")
    return output


def _format_thread(thread: dict[str, Any]) -> str:
    comments = [str(each.get("body", "")) for each in thread.get("comments") or () if isinstance(each, dict)]
    parts = [str(thread.get("title") or ""), str(thread.get("body") or ""), *comments]
    return "\n\n".join([part for part in parts if part])[:MAX_TEXT]
