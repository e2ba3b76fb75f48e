"""`callboard models`: list, pull, locate and remove the files of local models.

Paths go to standard output, everything else to standard error.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec
import typer

from callboard.cli import complete
from callboard.cli.options import Json
from callboard.configuration import Settings
from callboard.errors import CallerError, ModelFileError, NoSuchModel
from callboard.extras import require_extra
from callboard.profiles import Examination, ModeName, model_names
from callboard.profiles.remarks import EXAMINED
from callboard.providers import FallbackModel, HttpModel, Transport
from callboard.providers.backend_info import describe_change, embedded_version, read_backend_info, read_server_pages
from callboard.providers.local.download import (
    Progress,
    ProgressEvent,
    Received,
    SourceRefused,
    SourceTried,
    Verifying,
    Waiting,
    pull,
)
from callboard.providers.local.model_files import (
    Catalogue,
    CatalogueEntry,
    Copy,
    Place,
    Wheels,
    known_models,
    locate,
    remove,
)
from callboard.providers.local.references import complete_entry, find_entry, parse_reference, pin
from callboard.providers.local.saved_prompts import clear_prompts, list_prompts
from callboard.providers.local.sources import describe_source
from callboard.providers.registry import PlannedModel
from callboard.servers.gateway import BackendSettings
from callboard.text.display import display
from callboard.wires import get_wire

Tell: TypeAlias = Callable[[str], None]
_LOCAL: Final = "local:"
_HERE: Final[Mapping[type, str]] = {Wheels: "packages on PyPI", Copy: "this machine"}
"""Places of sources without a host."""


async def compare_model(model: PlannedModel, tell: Tell) -> None:
    """Tell if the backend of a model, or of a chain's models, changed since its facts were found."""
    models = model.models if isinstance(model, FallbackModel) else (model,)
    for change in await asyncio.gather(*[_compare(each) for each in models if isinstance(each, HttpModel)]):
        if change:
            tell(change)


async def compare_backend(
    backend: BackendSettings, profiles: Mapping[str, Mapping[str, Any]], transport: Transport, tell: Tell
) -> None:
    """Tell if a backend of the gateway changed since the facts of its models were found."""
    url = f"{_LOCAL}{backend.local}" if backend.local else backend.url
    pages = None
    for pattern, row in profiles.items():
        examined = msgspec.convert(row.get(EXAMINED, {}), Examination)
        asked_at = _Asked(url, pattern)
        # The models of a backend are unknown until a client asks for one.
        if not examined.version or _describe_change(asked_at, examined, ""):
            continue
        if not asked_at.is_local and pages is None:  # once for all models
            headers = {**backend.headers, **get_wire(backend.wire).headers(backend.key)}
            pages = await read_server_pages(transport, url, headers)
        version = embedded_version() if pages is None else pages.describe(pattern).version
        if change := _describe_change(asked_at, examined, version):
            tell(change)


class _Asked(NamedTuple):
    """The endpoint of a model."""

    url: str
    model: str

    @property
    def display_url(self) -> str:
        """The URL without user and password."""
        if self.is_local:
            return self.url
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def is_local(self) -> bool:
        return self.url.startswith(_LOCAL)


async def _compare(model: HttpModel) -> str:
    examined = model.resolution.examined
    if examined is None:
        return ""
    name = model.resolution.model
    is_local = model.resolution.provider == "local"
    asked_at = _Asked(f"{_LOCAL}{name}" if is_local else model.base_url, name)
    change = _describe_change(asked_at, examined, "")
    if change or not examined.version:
        return change
    if is_local:
        return _describe_change(asked_at, examined, embedded_version())
    info = await read_backend_info(model.transport, model.base_url, model.headers, name)
    return _describe_change(asked_at, examined, info.version)


def _describe_change(asked_at: _Asked, examined: Examination, version: str) -> str:
    """Say why the facts may be outdated, with the command that checks again; "" if they hold."""
    url, model = asked_at.display_url, asked_at.model
    change = describe_change(examined, url, version)
    if not change:
        return ""
    where = f"--local {url.removeprefix(_LOCAL)}" if asked_at.is_local else f"--backend {url} --model {model}"
    return display(f"the facts of {model} in callboard.toml: {change}; callboard doctor {where} --write checks again")


app = typer.Typer(no_args_is_help=True, help="Download and manage models that run on this machine.")

_Name = Annotated[
    str, typer.Argument(help="A name from `callboard models list`.", show_default=False, autocompletion=complete.local)
]


@app.command("list")
def list_models(
    context: typer.Context,
    as_json: Json = False,
) -> None:
    """List the available models, and which are downloaded."""
    catalogue = _catalogue(context)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode([_to_row(entry) for entry in catalogue.models])))
        return
    rows = [
        ("NAME", "SIZE", "LICENCE", "CONTEXT", "HERE", "TITLE"),
        *(
            (entry.name, _megabytes(entry.size), entry.licence, f"{entry.context}", _format_state(entry), entry.title)
            for entry in catalogue.models
        ),
    ]
    if files := list_prompts():
        size = _megabytes(sum(path.lstat().st_size for path in files))
        typer.echo(f"{len(files)} saved prompts have {size}; `callboard models clear-prompts` deletes them", err=True)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        typer.echo("  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]).rstrip())


@app.command("pull")
def pull_model(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A name from `callboard models list`, hf:OWNER/REPO/FILE.gguf, an https URL, or a file.",
            show_default=False,
            autocompletion=complete.local,
        ),
    ],
    sha256: Annotated[str, typer.Option(help="The SHA-256 of the file. A URL needs it.")] = "",
) -> None:
    """Download a model and print its path. A stopped download continues where it stopped.

    A file from elsewhere is pinned to its SHA-256 at its first pull. A later pull of another file is refused.
    """
    source = parse_reference(name)
    if source is None:
        if sha256:
            raise CallerError("only a file from elsewhere has it", path="--sha256", hint="the catalogue has its own")
        typer.echo(pull_with_progress(name, catalogue=_catalogue(context)))
        return
    require_extra("local")
    entry = asyncio.run(find_entry(source, sha256))
    pin(entry, replace=bool(sha256))
    path = pull_with_progress(entry.name)
    remark = complete_entry(entry.name)
    typer.echo(f"local:{entry.name} is ready{f', but {remark}' if remark else ''}", err=True)
    typer.echo(path)


@app.command("path")
def print_path(context: typer.Context, name: _Name) -> None:
    """Print the path of a downloaded model."""
    typer.echo(locate(name, catalogue=_catalogue(context)))


@app.command("remove")
def remove_model(context: typer.Context, name: _Name) -> None:
    """Delete a model's file, or a partial download."""
    catalogue = _catalogue(context)
    pinned = Place(catalogue.find(name)).pin.exists()
    removed = remove(name, catalogue=catalogue)
    typer.echo(f"{name} is {'removed' if removed else 'forgotten' if pinned else 'not downloaded'}", err=True)
    if removed and pinned:
        typer.echo(f"its SHA-256 stays pinned; `callboard models remove {name}` again forgets it", err=True)


@app.command("clear-prompts")
def clear_saved_prompts() -> None:
    """Delete the saved prompts of local models. The next start with each prompt is slow again."""
    count, size = clear_prompts()
    typer.echo(f"{count} saved prompts deleted, {_megabytes(size)}", err=True)


def pull_with_progress(name: str, *, catalogue: Catalogue | None = None) -> Path:
    """Return the model's verified file. Download it if needed, with its size and progress on standard error.

    `catalogue` is by default the shipped one. Raises the errors of `pull`; at ctrl-C it says how to continue and
    raises KeyboardInterrupt.
    """
    place = Place((catalogue or known_models()).find(name))
    if not place.file.exists():
        hosts = [urlsplit(describe_source(each)).netloc or _HERE[type(each)] for each in place.entry.sources]
        where = f"from {' or '.join(hosts)} to {place.file.parent}"
        typer.echo(
            f"{name}: downloading {_megabytes(place.entry.size)} once, {where}; its SHA-256 is checked", err=True
        )
    try:
        if typer.get_text_stream("stderr").isatty():
            return _pull_with_bar(name, catalogue)
        return asyncio.run(pull(name, catalogue=catalogue, progress=_report_lines(name)))
    except KeyboardInterrupt:
        typer.echo(f"stopped; the partial file is kept, and `callboard models pull {name}` continues", err=True)
        raise


def _pull_with_bar(name: str, catalogue: Catalogue | None) -> Path:
    from rich.console import Console  # noqa: PLC0415  # rich costs 50 ms
    from rich.markup import escape  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(escape(name), total=None, visible=False)

        def show(event: ProgressEvent) -> None:
            match event:
                case Received(done=done, total=total):
                    bar.update(task, completed=done, total=total, visible=True)
                case _:
                    bar.console.print(_describe_event(name, event), markup=False, highlight=False)

        return asyncio.run(pull(name, catalogue=catalogue, progress=show))


def _report_lines(name: str) -> Progress:
    """Make a Progress without a terminal: one line per 10 %."""
    tenth = -1

    def show(event: ProgressEvent) -> None:
        nonlocal tenth
        match event:
            case Received(done=done, total=total):
                if done * 10 // total != tenth:
                    tenth = done * 10 // total
                    typer.echo(f"{name}: {tenth * 10} % of {_megabytes(total)}", err=True)
            case _:
                typer.echo(_describe_event(name, event), err=True)

    return show


def _describe_event(name: str, event: ProgressEvent) -> str:
    match event:
        case Waiting():
            return f"{name}: waiting for another process that downloads it"
        case SourceTried(source=source):
            return f"{name}: from {source}"
        case SourceRefused(why=why):
            return f"{name}: {why}"
        case Verifying():
            return f"{name}: verifying the file"
        case Received(done=done, total=total):
            return f"{name}: {done} of {total} bytes"


def _catalogue(context: typer.Context) -> Catalogue:
    return context.find_object(Catalogue) or known_models()


def _format_state(entry: CatalogueEntry) -> str:
    place = Place(entry)
    if place.file.exists():
        return "yes"
    if place.partial.exists():
        return f"{place.partial.stat().st_size * 100 // entry.size} %"
    return "no"


def _to_row(entry: CatalogueEntry) -> dict[str, object]:
    place = Place(entry)
    here = place.file.exists()
    return {
        "name": entry.name,
        "title": entry.title,
        "size": entry.size,
        "licence": entry.licence,
        "context": entry.context,
        "sha256": entry.sha256,
        "here": here,
        "path": str(place.file) if here else None,
    }


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


CODING_FACTS: Mapping[str, Any] = MappingProxyType({"gate": "", "fenced_commands": True})
"""Facts for the coding agents. No gate: a step's arguments are rarely in the conversation, so a gate would stop it."""


def open_model(
    settings: Settings, tell: Callable[[str], None], facts: Mapping[str, Any] = MappingProxyType({})
) -> PlannedModel:
    """Open the model of the settings, or a chain of models.

    A missing local model is downloaded last, after everything else has been checked.

    Args:
        settings: The user's settings.
        tell: Called with a line of text before a request is repeated.
        facts: Facts that the user's settings override.
    """
    from callboard.providers import FallbackModel, open_model  # noqa: PLC0415  # as above

    def access(name: str) -> PlannedModel:
        return open_model(
            name,
            base_url=settings.base_url,
            api_key=os.environ.get("CALLBOARD_API_KEY", "") if settings.base_url else "",
            mode=cast("ModeName", settings.mode),  # checked at its use
            profile={**facts, **settings.profile(name), **({"dialect": settings.dialect} if settings.dialect else {})},
            tell=tell,
        )

    models: dict[str, PlannedModel | None] = {}
    for name in model_names(settings.model):
        try:
            models[name] = access(name)
        except (NoSuchModel, ModelFileError):
            if not name.startswith("local:") or name.endswith(".gguf"):
                raise
            models[name] = None
    for name, model in models.items():
        if model is None:
            pull_with_progress(name.removeprefix("local:"))
            models[name] = access(name)
    opened = [model for model in models.values() if model is not None]
    return opened[0] if len(opened) == 1 else FallbackModel(opened)


async def check_reachable(model: PlannedModel, tell: Callable[[str], None]) -> None:
    """Check that the endpoint accepts a connection, and tell if it changed since the model was examined.

    Raises:
        ProviderError: The only endpoint accepts no connection.
    """
    if isinstance(model, HttpModel):
        await model.connect()
    await compare_model(model, tell)
