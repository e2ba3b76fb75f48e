"""Issues and pull requests, through `gh`.

Owns the way to GitHub's own program, where it is installed and signed in. Knows nothing of tokens: `gh` has them.
Law: nothing is written there but what the user asked for by name. `gh` asks git about the repository, and that git
is as closed as ours: it reads of the configuration what `git_settings` lists, and runs no hook, filter or monitor. Of
our environment it gets what it needs, and no program that it starts is a repository's.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from callboard.coding.git.process import closed_environment
from callboard.coding.git.repository import find_repository
from callboard.errors import CallerError
from callboard.programs import find_program

MAX_TEXT: Final = 100_000
"""Characters of an issue that are read."""
SECONDS: Final = 60.0

_KEPT: Final = (
    *("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_HOST", "GH_CONFIG_DIR"),
    *("GH_REPO", "XDG_STATE_HOME", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS", "HTTP_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""What of the user's environment `gh` gets besides what git gets: how it signs in, and to what."""
_QUIET: Final = {
    "GH_PROMPT_DISABLED": "1",
    "GH_NO_UPDATE_NOTIFIER": "1",
    "GH_PAGER": "cat",
    "GH_EDITOR": "false",
    "NO_COLOR": "1",
}


async def issue_text(number: int, directory: Path) -> str:
    """Title, text and comments of an issue, whole. Raises CallerError."""
    told = await _gh(directory, f"--issue {number}", "issue", "view", str(number), "--json", "title,body,comments")
    return _told(told)


async def pull_request_of(number: int, directory: Path) -> tuple[str, str]:
    """The branch of a pull request, and its title, text and comments. Raises CallerError."""
    told = await _gh(
        directory, f"--pr {number}", "pr", "view", str(number), "--json", "title,body,comments,headRefName"
    )
    return str(told.get("headRefName", "")), _told(told)


async def open_pull_request(directory: Path, *, branch: str, title: str, body: str, draft: bool) -> str:
    """Opens one for a branch that was pushed; its address. Raises CallerError."""
    arguments = ["pr", "create", "--head", branch, "--title", title, "--body-file", "-"]
    output = await _run(directory, "--pr", [*arguments, *(["--draft"] if draft else [])], body.encode())
    return output.decode("utf-8", "replace").strip()


async def _gh(directory: Path, path: str, *arguments: str) -> dict[str, Any]:
    output = await _run(directory, path, arguments)
    try:
        told = json.loads(output)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise CallerError("gh gave no JSON", path=path)
    return told


async def _run(directory: Path, path: str, arguments: Any, given: bytes = b"") -> bytes:
    program = find_program("gh")
    if program is None:
        raise CallerError("gh is not installed", path=path, hint="install it, or pass the text with --description")
    repository = await find_repository(directory)
    if repository is None:
        raise CallerError("gh needs a git repository", path=str(directory), hint="git init makes one")
    with repository.closed(await repository.settings(), online=True) as place:
        own = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment = {**closed_environment(online=True), **place, **own, **_QUIET}
        return await _answer([program, *arguments], directory, environment, path, given)


async def _answer(
    command: Sequence[str], directory: Path, environment: Mapping[str, str], path: str, given: bytes
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
            output, error = await process.communicate(given)
    except TimeoutError:
        raise CallerError(f"gh did not answer within {SECONDS:g} s", path=path) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = error.decode("utf-8", "replace").strip()[:500]
        raise CallerError(f"gh: {said}", path=path, hint="gh auth status; or pass the text with --description")
    return output


def _told(given: dict[str, Any]) -> str:
    comments = [str(each.get("body", "")) for each in given.get("comments") or () if isinstance(each, dict)]
    parts = [str(given.get("title") or ""), str(given.get("body") or ""), *comments]
    return "\n\n".join([part for part in parts if part])[:MAX_TEXT]
