"""The git repository that an agent is given, and what it left of it.

Owns git, which is run without what the repository's own settings would have it run. Knows nothing of agents.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from evals.task import Files, Task


class Fixture(NamedTuple):
    """A fresh repository on its branch `main`, at the commit `base`."""

    root: Path
    base: str

    @property
    def untouched(self) -> bool:
        """Whether the user's tree is as it was, so far as git can tell."""
        branch = git(self.root, "rev-parse", "--abbrev-ref", "HEAD").strip()
        head = git(self.root, "rev-parse", "HEAD").strip()
        return (branch, head, git(self.root, "status", "--porcelain")) == ("main", self.base, "")

    def export(self, revision: str, to: Path) -> None:
        """Write the files of a commit to a new folder. Raises CalledProcessError where there is none."""
        to.mkdir()
        archive = to.with_suffix(".tar")
        git(self.root, "archive", "--format=tar", f"--output={archive}", "--end-of-options", revision)
        with tarfile.open(archive) as packed:
            if hasattr(tarfile, "data_filter"):
                packed.extractall(to, filter="data")
            else:  # Python before 3.11.4: without links, which lead elsewhere
                packed.extractall(to, [each for each in packed if each.isreg() or each.isdir()])
        archive.unlink()

    def commits(self, revision: str) -> int:
        """How many commits there are on top of the first. Raises CalledProcessError where there is no such revision."""
        return int(git(self.root, "rev-list", "--count", "--end-of-options", f"{self.base}..{revision}"))


def lay_out(task: Task, root: Path) -> Fixture:
    """Make the repository of a task; a review's branch is one commit on top of `main`."""
    fixture = start(task.repository, root)
    if task.kind == "review":
        git(root, "checkout", "--quiet", "-b", task.branch)
        overlay(task.change, root)
        _commit(root, task.description)
        git(root, "checkout", "--quiet", "main")
    return fixture


def start(files: Files, root: Path) -> Fixture:
    """Make a repository with files as its first commit."""
    root.mkdir(parents=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    git(root, "config", "user.name", "Ada")
    git(root, "config", "user.email", "ada@example.com")
    overlay(files, root)
    _commit(root, "First version")
    return Fixture(root, git(root, "rev-parse", "HEAD").strip())


def overlay(files: Files, target: Path) -> None:
    """Write files into a folder."""
    for path, text in files.items():
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink():
            file.unlink()
        file.write_text(text, "utf-8")


def read_tree(folder: Path) -> dict[str, str]:
    """Read the files of a folder that are text, without links."""
    texts = {}
    for each in sorted(folder.rglob("*")):
        if each.is_file() and not each.is_symlink():
            with suppress(UnicodeDecodeError):
                texts[each.relative_to(folder).as_posix()] = each.read_text("utf-8")
    return texts


def git(root: Path, *arguments: str) -> str:
    """What git prints. Raises CalledProcessError where it fails."""
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-C", str(root), *arguments]
    environment = {
        "PATH": os.environ["PATH"],
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    ran = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return ran.stdout


def _commit(root: Path, message: str) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", message)
