"""Read a docstring: the description of the function and of each parameter.

The style (sphinx, google or numpy) is guessed. griffe reads the parameters; it is imported only if there are any.
"""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import Final

import msgspec

_STYLES: Final = {
    "sphinx": re.compile(r"^[ \t]*:(?:param|parameter|arg|argument|key|keyword)[ \t]+[^:\n]+:", re.MULTILINE),
    "numpy": re.compile(r"^[ \t]*(?:Other )?Parameters[ \t]*\n[ \t]*-{3,}[ \t]*$", re.MULTILINE | re.IGNORECASE),
    "google": re.compile(
        r"^[ \t]*(?:Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Other Parameters):[ \t]*\n+[ \t]+\S",
        re.MULTILINE | re.IGNORECASE,
    ),
}


class Documented(msgspec.Struct, frozen=True):
    """The text before the parameters, and the description of each parameter."""

    description: str
    parameters: dict[str, str]


def read_docstring(docstring: str | None) -> Documented:
    text = cleandoc(docstring or "").strip()
    matches = {style: match for style, pattern in _STYLES.items() if (match := pattern.search(text))}
    if not matches:
        return Documented(text, {})
    style = min(matches, key=lambda name: matches[name].start())
    start = matches[style].start()
    return Documented(text[:start].strip(), _parameters(text[start:], style))


def _parameters(text: str, style: str) -> dict[str, str]:
    import griffe  # noqa: PLC0415 - 80 ms that only a section of parameters needs

    parse = {"sphinx": griffe.parse_sphinx, "numpy": griffe.parse_numpy, "google": griffe.parse_google}[style]
    kinds = (griffe.DocstringSectionParameters, griffe.DocstringSectionOtherParameters)
    # Some text precedes it, because griffe finds no section on the first line.
    return {
        parameter.name: " ".join(parameter.description.split())
        for section in parse(griffe.Docstring("-\n\n" + text), warnings=False)
        if isinstance(section, kinds)
        for parameter in section.value
    }
