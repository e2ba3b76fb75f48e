"""Hold a model to the calls that a dialect spells: from the row that parses them, and from the declared tools."""

from callboard.dialects.constraints.gbnf import Gbnf, write_gbnf

__all__ = ["Gbnf", "write_gbnf"]
