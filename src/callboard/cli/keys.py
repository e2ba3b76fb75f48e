"""Keys that an option names instead of spelling: `env:NAME` is a variable's value, `file:PATH` a file's text.

Why: what a command line spells, every user of the machine reads in `ps`, and the shell writes it into its history.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from callboard.errors import CallerError

HINT: Final = "env:NAME or file:PATH hides it from ps"
"""What the help of an option for a key says of this."""
_REFERENCE: Final = re.compile(r"((?:[^=:]*=)?)(env|file):(.+)", re.DOTALL)


def read_key(text: str) -> str:
    """The key that an option gives, where it names a place the one that is there; `NAME=` before it stays.

    Raises CallerError for a variable that is not set, and for a file that cannot be read or is empty.
    """
    match = _REFERENCE.fullmatch(text)
    if match is None:
        return text
    owner, kind, place = match.groups()
    key = os.environ.get(place, "") if kind == "env" else _read_file(place)
    if not key:
        hint = f"export {place}=..." if kind == "env" else "write the key into it"
        raise CallerError("holds no key", path=f"--key {kind}:{place}", hint=hint)
    return owner + key


def read_keys(texts: Iterable[str] | None) -> list[str]:
    """The same for an option that may be repeated."""
    return [read_key(each) for each in texts or ()]


def _read_file(path: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise CallerError(reason, path=f"--key file:{path}", hint="name a file that holds the key alone") from None
