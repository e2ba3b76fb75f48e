import ast
import random
import sysconfig
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.edits.imports import add_imports

DEFINED = {
    "shop/cart.py": ["total", "Cart"],
    "src/shop/money.py": ["rounded"],
    "shop/__init__.py": ["shop_name"],
    "a.py": ["twice"],
    "b.py": ["twice"],
    "tests/my-odd.py": ["odd"],
    "web/cart.js": ["render"],
}


@table(
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


@table(
    ("code", "above"),
    [
        ("@pytest.mark.slow\n@total\ndef test():\n    pass\n", ""),
        ("@total\nclass TestA:\n    pass\n", ""),
        (
            '#!/usr/bin/python\n# coding: utf-8\n\n"""Doc.\n\x0c\nimport os\n"""\n\x0c\n@total\ndef f(): pass\n',
            "@total",
        ),
        ('"""Doc."""; total()\n', None),
        ("from __future__ import annotations; total()\n", None),
        ("x = '''\u2028\x1c'''\ntotal()\n", "x ="),
        ("if TYPE_CHECKING:\n    import os\ntotal()\n", "if TYPE"),
        ('"""Doc."""\r\n\r\n@total\r\nasync def f(): pass\r\n', "@total"),
        ("total()", ""),
    ],
)
def test_imports_come_before_the_first_statement(code, above):
    made = add_imports(code, DEFINED)
    compile(made, "a.py", "exec")
    if above is None:
        assert made == code
    else:
        assert made.index("from shop.cart import total\n") < made.index("total", made.index("import total") + 12)
        assert made.partition("import total\n")[2].lstrip().startswith(above)


def test_files_with_imports_compile():
    paths = [
        each
        for each in Path(sysconfig.get_path("stdlib")).glob("[a-z]*/[a-z]*.py")
        if "packages" not in each.parent.name
    ]
    for path in random.Random(7).sample(sorted(each for each in paths if 500 < each.stat().st_size < 8_000), 60):
        # Without its imports it lacks many.
        code = path.read_text("utf-8")
        lines = code.split("\n")
        for node in reversed(ast.parse(code).body):
            if isinstance(node, ast.Import | ast.ImportFrom) and getattr(node, "module", "") != "__future__":
                lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
        bare = "\n".join(lines)
        names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
        made = add_imports(bare, {"shop/all.py": sorted(names)[::3]})
        compile(made, str(path), "exec")
        before, after = ast.parse(bare), ast.parse(made)
        assert {*map(ast.dump, before.body)} <= {*map(ast.dump, after.body)}
        assert ast.get_docstring(before) == ast.get_docstring(after)


@table("code", ["def f(:\n", "package a\n", "", "\0", "(" * 5000])
def test_what_is_not_python_stays(code):
    assert add_imports(code, DEFINED) == code


@given(st.lists(st.sampled_from(["import os", "total()", "def f():\n    Cart", "'x'", "x = rounded", "pytest", "#"])))
def test_nothing_is_missing_afterwards(lines):
    made = add_imports("\n".join(lines), DEFINED)
    assert add_imports(made, DEFINED) == made
    ast.parse(made)


@table(
    ("text", "code", "imports"),
    [
        ("", "def f(x):\n    return html.escape(x)\n", ["import html"]),
        ("import html\n", "def f(x):\n    return html.escape(x)\n", []),
        ("html = 1\n", "def f(x):\n    return html.escape(x)\n", []),
        ("", "x = Decimal(1)\ny = Path(x)\n", ["from decimal import Decimal", "from pathlib import Path"]),
        ("from decimal import Decimal as D\nfrom d import *\n", "x = Decimal(1)\n", []),
        ("def total():\n    pass\n", "x = total()\n", []),
        ("def broken(:\n", "x = Decimal(1)\n", []),
    ],
)
def test_code_for_a_file_gets_what_the_file_does_not_have(text, code, imports):
    made = add_imports(code, DEFINED, text)
    assert [line for line in made.removesuffix(code).split("\n") if line] == imports
