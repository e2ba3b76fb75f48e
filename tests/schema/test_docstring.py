from __future__ import annotations

import subprocess
import sys

from tests.tables import table

from callboard.schema.docstring import read_docstring


@table(
    ("docstring", "description", "parameters"),
    [
        (None, "", {}),
        ("Find.", "Find.", {}),
        ("Find.\n\n    Returns:\n        It.\n    ", "Find.\n\nReturns:\n    It.", {}),
        (
            "Find.\n\n    Args:\n        a: The a,\n            and more.\n        b (int): The b.\n\n    Returns:\n        c",
            "Find.",
            {"a": "The a, and more.", "b": "The b."},
        ),
        ("Find.\n\nParameters:\n    a: The a.", "Find.", {"a": "The a."}),
        ("Find.\n\n:param a: The a.\n:param int b: The b.\n:returns: c", "Find.", {"a": "The a.", "b": "The b."}),
        (
            "Find.\n\nParameters\n----------\na : int\n    The a.\nb, c : int, optional\n    Both.\n\nReturns\n-------\nint",
            "Find.",
            {"a": "The a.", "b": "Both.", "c": "Both."},
        ),
        ("\n    Args:\n        a: The a.\n    ", "", {"a": "The a."}),
    ],
)
def test_three_styles(docstring, description, parameters):
    found = read_docstring(docstring)
    assert (found.description, found.parameters) == (description, parameters)


def test_what_is_not_needed_is_not_imported():
    code = """
import sys
from callboard.schema import check_signature, compile_coercion, derive
heavy = lambda: {name for name in ("pydantic", "griffe", "jsonschema_rs", "difflib") if name in sys.modules}
def find(query: str):
    '''Find.

    Returns:
        It.
    '''
check_signature(find)
assert heavy() == set(), heavy()
derive(find).validate({"query": "x"})
assert heavy() == {"pydantic"}, heavy()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
