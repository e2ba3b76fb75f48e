"""JSON Schemas of tools' arguments, derived from signatures or written by others, and their validation.

Law: both validators accept and refuse the same values, with the same messages.
"""

from __future__ import annotations

from callboard.schema.coercion import Coercion, compile_coercion
from callboard.schema.errors import ArgumentsInvalid, Mistake
from callboard.schema.json_schema import Validator, compile_schema
from callboard.schema.signature import Derived, check_signature, derive, derive_output

__all__ = [
    "ArgumentsInvalid",
    "Coercion",
    "Derived",
    "Mistake",
    "Validator",
    "check_signature",
    "compile_coercion",
    "compile_schema",
    "derive",
    "derive_output",
]
