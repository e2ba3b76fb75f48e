"""The parts that a call is put together from: from the same parts a GBNF grammar is made and a structural tag."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from callboard.core import ToolDeclaration
from callboard.dialects.constraints.rules import GrammarRules
from callboard.schema.subschemas import Schema


class Blank(msgspec.Struct, frozen=True):
    """White space that means nothing, as the dialect writes it."""

    text: str = ""


class Name(msgspec.Struct, frozen=True):
    """The name of the tool, as it stands in the call."""

    text: str


class Arguments(msgspec.Struct, frozen=True, eq=False):
    """The arguments: as a JSON object, unless `write` says how else by the schema."""

    tool: ToolDeclaration
    write: Callable[[GrammarRules, Schema], str] | None = None


class Expression(msgspec.Struct, frozen=True, eq=False):
    """What an expression says."""

    write: Callable[[GrammarRules], str]


Part: TypeAlias = str | Blank | Name | Arguments | Expression
Parts: TypeAlias = tuple[Part, ...]
COUNTER = Expression(lambda rules: rules.find("counter", lambda: '"0" | [1-9] [0-9]?'))
