import ast
import random
import sysconfig
from collections import Counter
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.edits.replace_definitions import (
    cut_broken_end,
    list_definitions,
    replace_definitions,
)
from callboard.coding.edits.text_edits import EditRefused
from callboard.coding.outlines import find_syntax_error

PYTHON = '''"""Baskets."""

import os

SIZE = 10


class Basket:
    """A basket."""

    def __init__(self, items=[]):
        self.items = items

    @property
    def total(self):
        return 1


# How many pages there are.
def pages(total):
    return total // SIZE + 1


def other():
    pass
'''
JAVASCRIPT = 'const a = 1;\n\nexport function f(x) {\n  return x;\n}\n\ntest("adds", () => {\n  f(1);\n});\n'
GO = 'package x\n\nimport "fmt"\n\ntype B struct{ n int }\n\n// Add adds.\nfunc (b *B) Add(n int) {\n\tb.n = n\n}\n'


@table(
    ("path", "text", "code", "gone", "there"),
    [
        (
            "a.py",
            PYTHON,
            "def pages(total):\n    return -(-total // SIZE)\n",
            "+ 1",
            "# How many pages there are.\ndef pages",
        ),
        ("a.py", PYTHON, "def new():\n    pass\n", "", "def other():\n    pass\n\n\ndef new():\n    pass\n"),
        ("a.py", PYTHON, "import math\n\ndef other():\n    return math.pi\n", "", "import os\nimport math\n\nSIZE"),
        ("a.py", PYTHON, "import os\n\nSIZE = 20\n", "SIZE = 10", "SIZE = 20\n"),
        (
            "a.py",
            PYTHON,
            "@property\ndef total(self):\n    return 2\n",
            "return 1",
            "    @property\n    def total(self):\n        return 2\n",
        ),
        (
            "a.py",
            PYTHON,
            "class Basket:\n    def __init__(self, items=None):\n        self.items = items or []\n",
            "items=[]",
            "        return 1\n",
        ),
        ("a.js", JAVASCRIPT, "export function f(x) {\n  return x + 1;\n}\n", "return x;", "x + 1"),
        ("a.js", JAVASCRIPT, 'test("adds", () => {\n  f(2);\n});\n', "f(1)", "f(2)"),
        ("a.js", JAVASCRIPT, 'test("takes away", () => {});\n', "", 'f(1);\n});\n\ntest("takes away", () => {});\n'),
        (
            "a.go",
            GO,
            "package x\n\nfunc (b *B) Add(n int) {\n\tb.n += n\n}\n",
            "b.n = n",
            "// Add adds.\nfunc (b *B) Add",
        ),
        ("a.py", "", "x = 1\n", "", "x = 1\n"),
    ],
)
def test_code_takes_the_place_of_what_it_defines(path, text, code, gone, there):
    changed, names = replace_definitions(text, code, path)
    assert not gone or gone not in changed
    assert there in changed
    assert names
    again, _ = replace_definitions(changed, code, path)
    assert again == changed


@table(
    ("code", "told"),
    [
        ("def pages(total):\n    # ... existing code ...\n", "leaves something out"),
        ("class Basket:\n    # rest of the class\n    pass\n", "leaves something out"),
        ("print(1)\n", "defines nothing"),
        ("", "defines nothing"),
        ("def pages(total:\n    return 1\n", "syntax error"),
    ],
)
def test_code_that_cannot_be_put_is_refused(code, told):
    with pytest.raises(EditRefused, match=told):
        replace_definitions(PYTHON, code, "a.py")


@table(
    ("path", "code", "refused"),
    [
        ("a.py", "import os\nfrom b import c\n", True),
        ("a/__init__.py", "from b import c\n", False),
        ("a.py", "import os\n\nprint(os.name)\n", False),
        ("a.py", "", False),
        ("index.js", "export { a } from './a.js';\n", False),
    ],
)
def test_a_new_file_is_more_than_imports(path, code, refused):
    if refused:
        with pytest.raises(EditRefused, match="nothing but imports"):
            replace_definitions("", code, path)
    else:
        assert replace_definitions("", code, path)[0].strip() == code.strip()


def test_a_file_of_no_known_language_is_not_put_together():
    with pytest.raises(EditRefused, match="known language"):
        replace_definitions("a\n", "b\n", "a.txt")


def test_names():
    assert list_definitions(PYTHON, "a.py") == ("SIZE", "Basket", "pages", "other")


names = st.sampled_from(["alpha", "beta", "gamma", "delta"])


@given(st.dictionaries(names, st.integers(0, 9), min_size=1), st.dictionaries(names, st.integers(10, 19), min_size=1))
def test_what_the_code_does_not_name_stays(before, after):
    def written(functions):
        return "\n\n".join(f"def {name}():\n    return {value}\n" for name, value in functions.items())

    changed, put = replace_definitions(written(before), written(after), "a.py")
    found = {}
    exec(changed, found)
    assert {name: found[name]() for name in {**before, **after}} == {**before, **after}
    assert put == (*after,)


TESTS = {
    "a.py": "import pytest\n\n\n@pytest.mark.slow\ndef test_a():\n    pass\n\n\ndef test_ab():\n    pass\n\n\n"
    "class TestC:\n    def test_d(self):\n        pass\n\n    def test_e(self):\n        pass\n",
    "a_test.go": "package a\n\nfunc TestA(t *testing.T) {\n}\n\nfunc TestAb(t *testing.T) {\n}\n",
    "a.test.js": "test('adds one', () => {\n});\n\ntest('adds', () => {\n});\n",
}


@table(
    ("path", "end"),
    [
        ("a.py", "\n\ndef test_f():\n    assert [1,\n"),
        ("a.py", "\n\n@pytest.mark.parametrize(\n"),
        ("a.py", "\n    def test_f(self):\n        assert [1,\n"),
        ("a_test.go", "\n// TestB tests b.\nfunc TestB(t *testing.T) {\n\tif a {\n"),
        ("a.test.js", "\ntest('subtracts', () => {\n  if (\n"),
    ],
)
def test_a_broken_end_is_cut(path, end):
    whole = cut_broken_end(TESTS[path] + end, path)
    assert whole.startswith(TESTS[path])
    assert find_syntax_error(whole, path) is None
    assert cut_broken_end(whole, path) == whole


def test_what_is_broken_from_its_beginning_stays():
    assert cut_broken_end("def f(:\n", "a.py") == "def f(:\n"


BASKET = '''"""Baskets."""

from __future__ import annotations

import requests


@dataclass
class Basket(Base):
    """A basket."""

    items: list = 1
    limit = 2

    @property
    def total(self):
        return 1

    @total.setter
    def total(self, value):
        self.items = value

    # --- other methods ---

    def clear(self):
        self.items = 0
        self.limit = 0


def main():
    print(1)
    return 1


if __name__ == "__main__":
    main()
'''


@table(
    "line",
    [
        "# ... rest unchanged",
        "# ... same as before",
        "# existing code",
        "# (rest of the function remains the same)",
        "# [... unchanged ...]",
        "# no changes below",
        "# your code here",
        "# Keep all other methods as they are",
        "# The original implementation stays here ...",
        "pass  # unchanged",
        "...  # as before",
        "x = 1  # ... and so on",
        "...",
        "pass",
        '"""... docstring unchanged ..."""',
    ],
)
def test_code_that_leaves_something_out_is_refused(line):
    with pytest.raises(EditRefused, match="write the whole definition"):
        replace_definitions(BASKET, f"def main():\n    {line}\n", "a.py")
    with pytest.raises(EditRefused, match="write the whole definition"):
        replace_definitions(
            BASKET, f"class Basket(Base):\n    {line}\n\n    def clear(self):\n        {line}\n", "a.py"
        )


@table("line", ["// ... rest of the file stays the same", "/* ... */", "// unchanged", "/* existing code */"])
@table("path", ["a.js", "a.ts", "a.go"])
def test_code_in_other_languages_that_leaves_something_out_is_refused(path, line):
    code = {"a.go": f"package x\n\nfunc f() {{\n\t{line}\n}}\n"}.get(path, f"function f() {{\n  {line}\n}}\n")
    with pytest.raises(EditRefused, match=r"leaves something out at line \d"):
        replace_definitions("" if path == "a.go" else JAVASCRIPT, code, path)


@table(
    "line",
    [
        "# Loading the pages...",
        "# the rest of the items",
        "# as before, but sorted by name",
        "# copy the existing baskets",
        "x: tuple[int, ...] = ()  # unchanged",
        "log('... rest unchanged')",
        "# --- other methods ---",
        "x = y[..., 1]",
    ],
)
def test_ordinary_comments_leave_nothing_out(line):
    assert line in replace_definitions(BASKET, f"def main():\n    {line}\n    return 2\n", "a.py")[0]


@table(
    ("path", "text", "code", "changed"),
    [
        pytest.param(
            "a.py",
            "import requests\n\nx = 1\n",
            "import re\nx = 2\n",
            "import requests\nimport re\n\nx = 2\n",
            id="prefix",
        ),
        pytest.param(
            "a.py",
            'class A:\n    """Doc."""\n\n    x = 1\n    y = 1\n\n    def f(self):\n        pass\n\n    def g(self):\n        pass\n',
            "class A:\n    x = 2\n    z = 2\n\n    def g(self):\n        return 2\n",
            'class A:\n    """Doc."""\n\n    x = 2\n    z = 2\n    y = 1\n\n    def f(self):\n        pass\n\n'
            "    def g(self):\n        return 2\n",
            id="attributes",
        ),
        pytest.param(
            "a.go",
            'package x\n\nimport (\n\t"fmt"\n\t"os"\n)\n\nfunc f() {\n\tfmt.Println()\n}\n',
            'package x\n\nimport (\n\t"fmt"\n\ts "strings"\n)\n\nfunc f() {\n\ts.ToUpper("")\n}\n',
            'package x\n\nimport (\n\t"fmt"\n\t"os"\n)\nimport (\n\ts "strings"\n)\n\nfunc f() {\n\ts.ToUpper("")\n}\n',
            id="grouped imports",
        ),
        pytest.param(
            "a.js",
            "import { a, b } from './m.js';\n\nf();\n",
            "import { b, c as d } from './m.js';\n\nconst g = 1;\n",
            "import { a, b } from './m.js';\nimport { c as d } from './m.js';\n\nconst g = 1;\nf();\n",
            id="named imports",
        ),
        pytest.param(
            "a.cjs",
            "const { a } = require('./b');\n\nmodule.exports = { a };\n",
            "const { a, c } = require('./b');\n\nfunction g() {\n  return c;\n}\n",
            "const { a } = require('./b');\nconst { c } = require('./b');\n\nfunction g() {\n  return c;\n}\n\nmodule.exports = { a };\n",
            id="require",
        ),
        pytest.param(
            "a.py",
            'def f():\n    pass\n\n\nif __name__ == "__main__":\n    f()\n',
            "def g():\n    pass\n",
            'def f():\n    pass\n\n\ndef g():\n    pass\n\n\nif __name__ == "__main__":\n    f()\n',
            id="guard",
        ),
        pytest.param(
            "a.py",
            "def f():\n    pass\n\n\nif __name__ == '__main__':\n    f()\n",
            'def g():\n    pass\n\n\nif __name__ == "__main__":\n    g()\n',
            'def f():\n    pass\n\n\ndef g():\n    pass\n\n\nif __name__ == "__main__":\n    g()\n',
            id="another guard",
        ),
        pytest.param(
            "a.py",
            "# License\n\n@dec\ndef f():\n    pass\n",
            "import os\n\ndef g():\n    os.name\n",
            "# License\n\nimport os\n\n\n@dec\ndef f():\n    pass\n\n\ndef g():\n    os.name\n",
            id="decorator",
        ),
        pytest.param(
            "a.py",
            '#!/usr/bin/python\n# coding: utf-8\n"""Doc.\n\nimport x\n"""\nif TYPE_CHECKING:\n    import y\nx = 1\n',
            "from __future__ import annotations\nimport os\nx = os\n",
            '#!/usr/bin/python\n# coding: utf-8\n"""Doc.\n\nimport x\n"""\n\nfrom __future__ import annotations\n\nimport os\n'
            "if TYPE_CHECKING:\n    import y\nx = os\n",
            id="head",
        ),
        pytest.param(
            "a.py",
            "class A:\n    @property\n    def x(self):\n        return 1\n\n    @x.setter\n    def x(self, v):\n        self.v = v\n",
            "    @x.setter\n    def x(self, v):\n        self.v = v + 1\n",
            "class A:\n    @property\n    def x(self):\n        return 1\n\n    @x.setter\n    def x(self, v):\n        self.v = v + 1\n",
            id="setter",
        ),
        pytest.param(
            "a.py",
            "def f():\n\treturn 1",
            "def g():\n    return 'ü'",
            "def f():\n\treturn 1\n\n\ndef g():\n    return 'ü'\n",
            id="no end",
        ),
        pytest.param(
            "a.py",
            "x = '''\n\x0c\n'''\n\x0c\ndef f():\n    return 1\n",
            "def f():\n    return '''\n  \n'''\n",
            "x = '''\n\x0c\n'''\n\x0c\ndef f():\n    return '''\n  \n'''\n",
            id="form feeds and white space in strings",
        ),
        pytest.param(
            "a.rs",
            "impl A {\n    const N: i32 = 1;\n\n    fn f(&self) {\n        g();\n    }\n}\n",
            "#[derive(Debug)]\nstruct B;\n\nimpl A {\n    #[inline]\n    fn h(&self) {}\n}\n",
            "#[derive(Debug)]\nstruct B;\n\nimpl A {\n    const N: i32 = 1;\n\n    fn f(&self) {\n        g();\n    }\n\n"
            "    #[inline]\n    fn h(&self) {}\n}\n",
            id="impl",
        ),
        pytest.param(
            "a.js",
            "function f() {}\n\n(function () { })()\n",
            "var x = y\n",
            "function f() {}\n\nvar x = y;\n(function () { })()\n",
            id="semicolon",
        ),
    ],
)
def test_nothing_is_lost(path, text, code, changed):
    assert replace_definitions(text, code, path)[0] == changed
    assert replace_definitions(changed, code, path)[0] == changed


@table(
    ("path", "text", "code", "told"),
    [
        (
            "a.py",
            "if x:\n    def f(): return 1\n    def g(): return 2\n",
            "def f():\n    return 3\n",
            "one statement with g",
        ),
        ("a.py", "x = 1; y = 2\n", "x = 3\n", "one statement with y"),
        ("a.py", "for x in y:\n    z = 1\n", "z = 2\n", "write all of that statement"),
        (
            "a.py",
            "def f(): return 1\n\ndef f(): return 2\n",
            "def f():\n    return 3\n",
            "2 times in the file, at lines 1, 3",
        ),
        (
            "a.py",
            "class A:\n    def f(self): return 1\nclass B:\n    def f(self): return 1\n",
            "def f(self):\n    pass\n",
            "2 classes",
        ),
        ("a.py", "class A(B):\n    x = 1\n    y = 2\n", "class A(C):\n    x = 2\n", r"write it as 'class A\(B\):'"),
        ("a.py", "x = (1,\n\ndef f():\n    pass\n\ndef g():\n    pass\n", "def f():\n    return 1\n", "syntax error"),
        ("a.go", "package a\n\nconst (\n\tA = 1\n\tB = 2\n)\n", "package a\n\nconst A = 2\n", "one statement with B"),
        (
            "a.go",
            "package a\n\nfunc f() {}\n",
            "package main\n\nfunc f() {}\n",
            "the file has 'package a', not 'package main'",
        ),
        ("a.js", "export { a, b };\n", "export { a };\n", "one statement with export b"),
        (
            "a.js",
            "import { b } from 'm';\n",
            "import a, { b } from 'm';\nconst x = 1;\n",
            "imports some names again",
        ),
    ],
)
def test_what_would_be_lost_is_refused(path, text, code, told):
    with pytest.raises(EditRefused, match=told):
        replace_definitions(text, code, path)


def test_a_broken_file_is_replaced_by_code_that_defines_all_of_it():
    text, code = (
        "x = (1,\n\ndef f():\n    pass\n\ndef g():\n    pass\n",
        "x = 1\n\ndef g():\n    return 1\n\ndef f():\n    return 2\n",
    )
    assert replace_definitions(text, code, "a.py")[0] == code


@table(
    ("path", "line", "stays"),
    [
        ("calc.py", "from calc import add", False),
        ("src/shop/calc.py", "from shop.calc import add", False),
        ("src/shop/calc.py", "from .calc import add", False),
        ("src/shop/calc.py", "from calc import add", False),
        ("src/shop/calc.py", "from calc import unknown", True),
        ("src/shop/__init__.py", "from . import unknown", True),
        ("src/shop/__init__.py", "from shop import add", False),
        ("calc.py", "from calc import *", False),
        ("calc.js", "const { add } = require('./calc');", False),
        ("calc.js", "import { add } from './calc.js';", False),
        ("calc.test.js", "import { add } from './calc.js';", True),
    ],
)
def test_a_file_does_not_import_itself(path, line, stays):
    text = "def sub():\n    return 1\n" if path.endswith(".py") else "function sub() {}\n"
    code = f"{line}\n\n\n" + text.replace("sub", "add")
    for before in ("", text):
        assert (line in replace_definitions(before, code, path)[0]) == stays


@table(
    "line",
    [
        "import calc",
        "from calc import other",
        "from calc import add as plus",
        "import calc, os",
        "from .calc import other",
    ],
)
def test_an_import_of_the_file_itself_that_is_needed_is_refused(line):
    with pytest.raises(EditRefused, match=r"line 1 of the code imports calc\.py into itself"):
        replace_definitions("", f"{line}\n\n\ndef add():\n    return 1\n", "calc.py")


# The laws: what the code has is in the file afterwards, and so is what the file has and the code does not define.
VECTORS = Path(__file__).resolve().parents[2] / "vectors/edits"
STDLIB = Path(sysconfig.get_path("stdlib"))


def paragraphs(name):
    """Statements and members of classes, each with the line that begins its class, "" if there is none."""
    opening, found = "", []
    for part in (VECTORS / name).read_text("utf-8").rstrip().split("\n\n"):
        if part.endswith("{"):
            opening = part
        elif part in ("}", "});"):
            opening = ""
        else:
            found.append((opening, part))
    return found


@pytest.mark.parametrize("name", ["basket.mjs", "server.cjs", "shop.go"])
@given(data=st.data())
def test_nothing_of_a_file_and_of_code_is_lost(name, data):
    text, parts = (VECTORS / name).read_text("utf-8"), paragraphs(name)
    chosen = data.draw(st.sets(st.sampled_from(parts), min_size=1, max_size=6))
    # The same statements, or others of the same names.
    number = data.draw(st.sampled_from("127"))
    code = ""
    for opening, group in groupby([each for each in parts if each in chosen], key=itemgetter(0)):
        closing = "});" if opening.startswith("describe") else "}"
        written = [part.replace("1", number) for _, part in group]
        code += "\n\n".join([opening, *written, closing, ""] if opening else [*written, ""])
    if not list_definitions(code, name):
        with pytest.raises(EditRefused, match="defines nothing"):
            replace_definitions(text, code, f"src/{name}")
        return
    changed, _ = replace_definitions(text, code, f"src/{name}")
    assert [part for each in chosen if (part := each[1].replace("1", number)) not in changed] == []
    assert [part for _, part in {*parts} - chosen if part not in changed] == []
    assert find_syntax_error(changed, name) is None
    assert number != "1" or changed == text
    assert replace_definitions(changed, code, f"src/{name}")[0] == changed


def leaves(body, scope=""):
    """Each statement of a module and its classes, with the names that it defines."""
    for node in body:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        inside = [node] if isinstance(node, kinds) else [*ast.walk(node)]
        names = {each.name for each in inside if isinstance(each, kinds)}
        names |= {ast.unparse(each) for each in inside if isinstance(getattr(each, "ctx", None), ast.Store)}
        if isinstance(node, ast.ClassDef):
            yield scope, f"class {node.name}", names
            yield from leaves(node.body, f"{scope}{node.name}.")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            origin = f"{getattr(node, 'level', '')} {getattr(node, 'module', '')}"
            yield from ((scope, f"import {origin} {ast.unparse(each)}", {}) for each in node.names)
        elif not isinstance(node, ast.Pass):
            is_docstring = node is body[0] and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            is_compound = isinstance(node, ast.If | ast.For | ast.While | ast.With)
            names |= {"docstring"} if is_docstring else {ast.unparse(node).partition("\n")[0]} if is_compound else set()
            yield scope, ast.dump(node), names


def first_line(node):
    return min(node.lineno, *(each.lineno for each in [node, *getattr(node, "decorator_list", [])]))


def write_some(chance, text, body):
    """Some of the statements; functions are changed, and of classes some members are left out."""
    for node, after in zip(body, [*body[1:], None], strict=False):
        if chance.random() < 3 / len(body) and (after is None or first_line(after) > node.end_lineno):
            lines, own = text.split("\n"), getattr(node, "body", [])
            if isinstance(node, ast.ClassDef) and first_line(own[0]) > node.lineno:
                yield "\n".join(lines[first_line(node) - 1 : first_line(own[0]) - 1])
                yield from write_some(chance, text, own[:-1])
                yield "\n".join(lines[first_line(own[-1]) - 1 : own[-1].end_lineno])
                continue
            yield "\n".join(lines[first_line(node) - 1 : node.end_lineno])
            if isinstance(node, ast.FunctionDef) and own[0].lineno > node.lineno:
                yield f"{' ' * own[0].col_offset}changed = 1"


def test_nothing_of_a_python_file_and_of_code_is_lost():
    chance, refused = random.Random(7), Counter()
    paths = [each for each in STDLIB.glob("[a-z]*/[a-z]*.py") if 500 < each.stat().st_size < 8_000]
    paths = chance.sample(sorted(each for each in paths if "packages" not in each.parent.name), 60)
    texts = [each.read_text("utf-8") for each in paths]
    for text, other in zip(texts, [*texts[1:], texts[0]], strict=True):
        code = "\n".join(part for each in (text, other) for part in write_some(chance, each, ast.parse(each).body))
        try:
            changed, _ = replace_definitions(text, code, "src/some_file.py")
        except EditRefused as error:
            refused[str(error)] += 1
            continue
        written, before = [*leaves(ast.parse(code).body)], [*leaves(ast.parse(text).body)]
        after = Counter(each[:2] for each in leaves(ast.parse(changed).body))
        assert {each[:2] for each in written} - {*after} == set()
        defined = {(scope, name) for scope, _, names in written for name in names}
        kept = [(scope, node) for scope, node, names in before if not {(scope, name) for name in names} & defined]
        assert Counter(kept) - after == Counter()
        assert replace_definitions(changed, code, "src/some_file.py")[0] == changed
    assert refused.total() < 10, refused
