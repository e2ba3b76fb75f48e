"""Read keys that an option refers to: `env:NAME` is a variable's value, `file:PATH` a file's text.

A key on the command line itself can be read by every user of the machine in `ps`, and is in the shell's history.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import typer

from callboard.errors import CallerError

HINT: Final = "env:NAME or file:PATH hides it from ps"
"""For the help of options that take a key."""
_REFERENCE: Final = re.compile(r"((?:[^=:]*=)?)(env|file):(.+)", re.DOTALL)


def key_option(clients: str, variable: str) -> Any:
    """The repeatable option of the keys that these clients have to send; the variable holds them as well."""
    return typer.Option(
        help=f"A key that {clients} have to send: KEY, NAME=KEY or sha256:DIGEST; {HINT}; repeatable.",
        envvar=variable,
        show_default=False,
    )


def read_key(text: str) -> str:
    """The key of an option, read from the variable or file that it refers to; `NAME=` before it stays.

    Raises:
        CallerError: The variable is not set, or the file cannot be read or is empty.
    """
    match = _REFERENCE.fullmatch(text)
    if match is None:
        return text
    owner, kind, place = match.groups()
    key = os.environ.get(place, "") if kind == "env" else _read_file(place)
    if not key:
        hint = f"export {place}=..." if kind == "env" else "write the key into it"
        raise CallerError("holds no key", path=f"{kind}:{place}", hint=hint)
    return owner + key


def read_keys(texts: Iterable[str] | None) -> list[str]:
    """The keys of a repeatable option."""
    return [read_key(each) for each in texts or ()]


def _read_file(path: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise CallerError(reason, path=f"file:{path}", hint="name a file that holds the key alone") from None
