"""What a tool's definition says that has no name in the core.

Owns where it is kept: in `ToolDeclaration.extra`, under the name of the wire that it came over. Knows no wire.
Law: it is written on that wire only, and as it came.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


def unnamed(definition: Mapping[str, Any], named: Collection[str]) -> dict[str, Any]:
    """The fields that are none of the named ones, without nulls."""
    return {name: value for name, value in definition.items() if name not in named and value is not None}


def kept(wire: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The `extra` of a tool that came over the wire with these fields besides."""
    return {wire: fields} if fields else {}
