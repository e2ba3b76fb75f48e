"""`callboard clean`: show what Callboard keeps on disk, and delete the kinds that the user names.

Law: jobs that have not ended, settings, approvals, pins and keys are in no kind, so they are never deleted. Files that
only a link leads to are never deleted either.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple, TypeAlias

import typer

from callboard.agent.conversation import conversations_directory
from callboard.cli.durable_store import list_jobs, remove_job
from callboard.cli.job_actions import confirm_deletion
from callboard.cli.options import Json
from callboard.coding.job_folders import JobFolders, list_old_records
from callboard.configuration import user_file
from callboard.errors import CallboardError
from callboard.evaluation.records import evaluation_directory
from callboard.jobs import database_url
from callboard.jobs.job import END_STATES
from callboard.providers.local import model_files
from callboard.providers.local.saved_prompts import prompts_directory
from callboard.storage.directories import data_directory, state_directory

Items: TypeAlias = Mapping[str, Sequence[Path]]  # the paths of each item, by its name


class Kind(NamedTuple):
    """Files of one kind."""

    content: str
    find: Callable[[], Items]
    delete: Callable[[str, Sequence[Path]], object]


def _find_jobs() -> Items:
    folders = JobFolders()
    # An interrupted job can resume, and its worker may only stand still.
    states = END_STATES - {"interrupted"}
    names = [*list_old_records(), *[each.id for each in list_jobs() if each.state in states]]
    # Other hosts share a server's database: their jobs are not on this disk.
    is_shared = not database_url().startswith("sqlite")
    return {name: [path] for name in names if (path := folders.folder(name)).is_dir() or not is_shared}


def _delete_job(name: str, _: Sequence[Path]) -> None:
    if name not in list_old_records():
        remove_job(name)
    JobFolders().remove(name)


def _find_models() -> Items:
    places = [model_files.Place(each) for each in model_files.known_models().models]
    return {each.entry.name: [each.file, each.partial, each.wheels] for each in places}


def _files(content: str, find_directory: Callable[[], Path], *patterns: str) -> Kind:
    def find() -> Items:
        return {str(path): [path] for each in patterns for path in sorted(find_directory().glob(each))}

    return Kind(content, find, _delete_files)


def _delete_files(_: str, paths: Sequence[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


KINDS: Final[Mapping[str, Kind]] = {
    "jobs": Kind("jobs and chats that have ended: records, trees and outputs", _find_jobs, _delete_job),
    "models": Kind("models from `callboard models pull`", _find_models, lambda name, _: model_files.remove(name)),
    "conversations": _files("conversations of `callboard run`", conversations_directory, "*"),
    "evaluation": _files("tasks and answers of `callboard eval`", evaluation_directory, "*"),
    "caches": _files("results of tools and servers", state_directory, "results.db*", "mcp/results/*", "mcp/eras/*"),
    "prompts": _files("saved prompts of local models", prompts_directory, "*"),
    "logs": _files("logs of workers", state_directory, "jobs/*-worker.log"),
}


def clean(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(metavar="KIND", help=f"What to delete: {', '.join(KINDS)}.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Show what Callboard keeps on disk, or delete the kinds that you name.

    Running, waiting and interrupted jobs, settings, approvals, pins and keys stay.
    """
    chosen = [*dict.fromkeys(kinds or ())]
    if unknown := [each for each in chosen if each not in KINDS]:
        raise typer.BadParameter(f"no kind {unknown[0]!r}; there are {', '.join(KINDS)}")
    items: dict[str, Items] = {}
    for kind in chosen or KINDS:
        try:
            items[kind] = _find_items(kind)
        except CallboardError as error:  # such as a database of another version
            if chosen:
                raise
            typer.echo(f"{kind}: {error}", err=True)
    sizes = {kind: {name: sum(map(_measure, paths)) for name, paths in its.items()} for kind, its in items.items()}
    if parts := [f"{len(sizes[kind])} {kind} ({_sum(sizes[kind])})" for kind in chosen if sizes[kind]]:
        confirm_deletion(f"delete {', '.join(parts)}?", yes=yes)
    failures = 0
    for kind in chosen:
        for name, paths in items[kind].items():
            try:
                KINDS[kind].delete(name, paths)
            except CallboardError as error:  # such as a job that runs again
                typer.echo(f"not deleted: {error}", err=True)
                failures += 1
                del sizes[kind][name]
        typer.echo(f"{kind}: {len(sizes[kind])} deleted, {_sum(sizes[kind])}", err=True)
    if as_json:
        typer.echo(json.dumps({kind: {"items": len(its), "bytes": sum(its.values())} for kind, its in sizes.items()}))
    elif not chosen:
        _show(sizes)
    if failures:
        raise typer.Exit(1)


def _show(sizes: Mapping[str, Mapping[str, int]]) -> None:
    directories = {data_directory(), state_directory(), user_file(os.environ).parent}
    everything = sum(_measure(each.resolve()) for each in directories)
    for kind, its in sizes.items():
        typer.echo(f"{kind:13} {_sum(its):>12} {len(its):>6}  {KINDS[kind].content}")
    rest = {"": max(0, everything - sum(sum(its.values()) for its in sizes.values()))}
    typer.echo(f"{'(rest)':13} {_sum(rest):>12} {'':>6}  settings, approvals, pins, keys, the database, other jobs")
    typer.echo(f"in {', '.join(sorted(map(str, directories)))}; callboard clean KIND... deletes", err=True)


def _find_items(kind: str) -> Items:
    """Return the items of a kind, without paths that do not exist or that only a link leads to."""
    roots = [each.resolve() for each in (data_directory(), state_directory())]
    items = {}
    for name, paths in KINDS[kind].find().items():
        inside = [each for each in paths if any(each.parent.resolve().is_relative_to(root) for root in roots)]
        items[name] = [each for each in inside if kind == "jobs" or os.path.lexists(each)]  # a job may have no files
    return {name: paths for name, paths in items.items() if paths}


def _measure(path: Path) -> int:
    """Return the bytes of a file, or of all files in a directory. Do not follow links."""
    if path.is_dir() and not path.is_symlink():
        return sum(_measure(Path(folder, name)) for folder, _, names in os.walk(path) for name in names)
    return path.lstat().st_size if os.path.lexists(path) else 0


def _sum(sizes: Mapping[str, int]) -> str:
    return f"{sum(sizes.values()) / 1e6:,.1f} MB"
