"""Hold a model to the calls that a dialect spells: from the row that parses them, and from the declared tools."""

from callboard.dialects.constraints.gbnf import Gbnf, write_gbnf, write_thought_gbnf
from callboard.dialects.constraints.request_fields import constraint_fields
from callboard.dialects.constraints.structural_tag import write_structural_tag

__all__ = ["Gbnf", "constraint_fields", "write_gbnf", "write_structural_tag", "write_thought_gbnf"]
