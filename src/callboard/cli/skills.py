"""`callboard skills`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from msgspec import to_builtins

from callboard.cli.options import Json
from callboard.cli.settings import settings_in
from callboard.configuration.skills import PLACES, find_skills
from callboard.text.display import collapse, display


def skills(
    directory: Annotated[Path, typer.Argument(help="A directory of the project.", show_default="here")] = Path(),
    as_json: Json = False,
) -> None:
    """List the Agent Skills of a project and of your home, and why some are off.

    The coding agents and chats can load the skills that are on. `callboard trust` turns on the skills of a project.
    """
    place = directory.resolve()
    listing = find_skills(place, settings_in(place, {}).trusted)
    if as_json:
        typer.echo(json.dumps(to_builtins(listing, enc_hook=str), indent=2))
        return
    if not listing:
        places = " and ".join(PLACES)
        typer.echo(f"no skills in {places} of {display(str(place))} or of your home", err=True)
    for each in listing:
        state = "off" if each.problem else "on"
        typer.echo(f"{state:3}  {each.source:7}  {display(each.name)}  {collapse(each.description, 80)}".rstrip())
        typer.echo(f"     {display(str(each.folder), 400)}")
        if each.problem:
            hint = f"; {each.hint}" if each.hint else ""
            typer.echo(f"     {collapse(each.problem + hint, 400)}")
