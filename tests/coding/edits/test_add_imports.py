import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.coding.edits.add_imports import add_imports

DEFINED = {
    "shop/cart.py": ["total", "Cart"],
    "src/shop/money.py": ["rounded"],
    "shop/__init__.py": ["shop_name"],
    "a.py": ["twice"],
    "b.py": ["twice"],
    "tests/my-odd.py": ["odd"],
    "web/cart.js": ["render"],
}


@pytest.mark.parametrize(
    ("code", "imports"),
    [
        ("def test():\n    assert total([]) == 0\n", ["from shop.cart import total"]),
        (
            "def test():\n    with pytest.raises(ValueError):\n        Cart()\n",
            ["import pytest", "from shop.cart import Cart"],
        ),
        ("rounded(1)\n", ["from shop.money import rounded"]),
        ("shop_name\n", ["from shop import shop_name"]),
        ("twice()\n", []),
        ("odd()\nrender()\nunknown()\nlen([])\n", []),
        ("def total():\n    pass\n\n\ntotal()\n", []),
        ("from shop.cart import total\n\ntotal()\n", []),
        ("for total in []:\n    print(total)\n", []),
        ("lambda total: total\n", []),
        ("try:\n    pass\nexcept OSError as total:\n    total\n", []),
        ("match 1:\n    case [*total]:\n        total\n", []),
    ],
)
def test_what_is_used_and_not_bound_is_imported(code, imports):
    made = add_imports(code, DEFINED)
    assert made.endswith(code)
    assert made.removesuffix(code).split("\n") == ([*imports, "", "", ""] if imports else [""])


def test_imports_stand_below_what_leads_and_with_the_others():
    code = '"""Tests."""\n\nfrom __future__ import annotations\n\nimport os\n\nos.name\ntotal()\n'
    assert add_imports(code, DEFINED).splitlines()[4:7] == ["from shop.cart import total", "import os", ""]


@pytest.mark.parametrize("code", ["def f(:\n", "package a\n", "", "\0", "(" * 5000])
def test_what_is_not_python_stays(code):
    assert add_imports(code, DEFINED) == code


@given(st.lists(st.sampled_from(["import os", "total()", "def f():\n    Cart", "'x'", "x = rounded", "pytest", "#"])))
def test_nothing_is_missing_afterwards(lines):
    made = add_imports("\n".join(lines), DEFINED)
    assert add_imports(made, DEFINED) == made
    ast.parse(made)
