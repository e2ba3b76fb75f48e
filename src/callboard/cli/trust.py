"""`callboard trust`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from callboard.configuration import load_settings, user_file
from callboard.configuration.edit_config import set_trusted
from callboard.configuration.ownership import find_unsafe_owner
from callboard.configuration.settings import FILE_NAME
from callboard.configuration.skills import find_skills
from callboard.configuration.toml import read_document
from callboard.errors import CallerError
from callboard.text.display import make_visible


def trust(
    directory: Annotated[Path, typer.Argument(help="The directory with the file.", show_default="here")] = Path(),
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Stop trusting the project.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Let a project's callboard.toml and skills take effect.

    The file can start programs, send your prompts anywhere and allow every call. Skills tell models what to do. You see
    the file and a list of the skills before you confirm. The directory is added to `trusted` in your own callboard.toml.
    """
    project, own = directory.resolve(), user_file(os.environ)
    trusted = load_settings({}, own.parent, os.environ).trusted if own.is_file() else ()
    others = [each for each in trusted if Path(each).resolve() != project]
    if remove:
        if len(others) == len(trusted):
            raise CallerError("the project is not trusted", path=str(project))
        set_trusted(own, others)
        typer.echo(f"{project}: no longer trusted")
        return
    path = project / FILE_NAME
    skills = [each for each in find_skills(project, [str(project)]) if each.source == "project" and not each.problem]
    if not (path.is_file() or skills):
        raise CallerError(f"the directory has no {FILE_NAME} and no skills", path=str(project))
    if path.is_file():
        if problem := find_unsafe_owner(path, trusted=True):
            raise CallerError(problem.reason, path=str(path), hint=problem.hint)
        typer.echo(f"{path}:\n\n{make_visible(read_document(path, CallerError).text)}", err=True)
    for each in skills:
        typer.echo(f"skill {each.name}: {make_visible(each.description)} ({make_visible(str(each.folder))})", err=True)
    if not yes:
        if not sys.stdin.isatty():
            raise CallerError("no terminal to confirm in", path="--yes", hint="read the files, then add --yes")
        typer.confirm("Trust this project?", abort=True, err=True)
    set_trusted(own, [*others, str(project)])
    typer.echo(f"{project}: trusted; callboard trust --remove undoes this")
