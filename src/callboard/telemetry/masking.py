"""Mask what looks like a secret in a text that leaves the process.

Two kinds are found: keys and tokens by the forms that their makers gave them, and the values of this process's own
variables whose names say that they are secret. A secret of no known form in nobody's variable is not found, so content
is captured only where somebody asks for it.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import Final

MASK: Final = "***"
_LEAST: Final = 8
"""Characters below which the value of a variable is no secret: masking it would spoil every text."""
_SECRET_NAME: Final = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|PASSPHRASE)S?(?:_|$)", re.IGNORECASE
)
# What a form has read without being one it does not read again from the next place: hostile text is read once.
_FORMS: Final = re.compile(
    r"""
      -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    | \b(?:
        (?:sk|rk|pk)-[\w-]{16,}
      | (?:gh[pousr]|github_pat|glpat|xox[abposr]|hf|npm|pypi|dop_v1|shpat)[_-][\w-]{16,}
      | (?:AKIA|ASIA)[A-Z0-9]{16}\b
      | AIza[\w-]{30,}
    )
    | (?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*
    | (?<=://)[^/\s:@"]*:[^/\s:@"]+(?=@)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_NAMED: Final = re.compile(
    r"""(?ix)
    (?P<name> \b (?: bearer | basic ) \s+
            | (?: api[_-]?key | access[_-]?token | auth[_-]?token | authorization | client[_-]?secret | password | passwd
                | secret(?:[_-]?(?:access[_-]?)?key)? | token )
              \\? ["']? \s* [:=] \s* \\? ["']? (?: (?: bearer | basic ) \s+ )? )
    (?P<value> [^\s"'\\,;&}]{6,} )
    """
)


def mask_secrets(text: str) -> str:
    """The text with `***` in the place of what looks like a secret."""
    for value in secret_values():
        if value in text:
            text = text.replace(value, MASK)
    return _NAMED.sub(rf"\g<name>{MASK}", _FORMS.sub(MASK, text))


@cache
def secret_values() -> tuple[str, ...]:
    """The values of this process's secret variables as they were first asked for, the longest first: one may begin
    with another.
    """
    values = {value for name, value in os.environ.items() if len(value) >= _LEAST and _SECRET_NAME.search(name)}
    return tuple(sorted(values, key=len, reverse=True))
