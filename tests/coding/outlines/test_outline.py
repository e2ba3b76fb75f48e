from __future__ import annotations

from tests.tables import table

from callboard.coding.outlines import find_syntax_error, make_outline, parser
from callboard.coding.outlines import tree_walk as tree_sitter_parsing
from callboard.coding.outlines.languages import LANGUAGES, find_language

CASES = {
    "a.py": (
        (
            "import os\nfrom x import (a,\n b)\n@d\nclass A(B):\n    async def m(self):\n        def inner(): pass\n"
            "    class I: pass\ndef f(): pass\nif 1:\n    def g(): pass\n"
        ),
        ["5 class A", "6 method A.m", "8 class A.I", "9 func f", "11 func g"],
        [1, 2],
    ),
    "a.go": (
        (
            'package m\nimport (\n "fmt"\n x "y/z"\n)\ntype T struct{ a int }\ntype I interface{ M() }\ntype N int\n'
            "func (t *T) M() {}\nfunc (s S[T]) Q() {}\nfunc F() {}\n"
        ),
        ["6 struct T", "7 interface I", "8 type N", "9 method T.M", "10 method S.Q", "11 func F"],
        [3, 4],
    ),
    "a.js": (
        (
            "import a from 'b'\nconst c = require('d')\nexport default function f(){}\nclass A { m(){} get x(){return 1} }\n"
            "const g = async () => 1\nlet n = 1\n"
        ),
        ["3 func f", "4 class A", "4 method A.m", "4 method A.x", "5 func g"],
        [1, 2],
    ),
    "a.ts": (
        (
            "import {a} from 'b'\nexport interface I { m(): void }\ntype T = string\nenum E {A}\n"
            "abstract class C { abstract q(): void; m(){} }\nnamespace N { export function f(){} }\n"
            "export const h = (x: number): number => x\n"
        ),
        [
            "2 interface I",
            "3 type T",
            "4 enum E",
            "5 class C",
            "5 method C.q",
            "5 method C.m",
            "6 namespace N",
            "6 func N.f",
            "7 func h",
        ],
        [1],
    ),
    "a.tsx": ("export const C = () => <div/>\n", ["1 func C"], []),
    "a.rs": (
        (
            "use std::io;\nmod m { pub fn f(){} }\nstruct S; enum E{A}\ntrait T { fn q(&self); }\nimpl T for S { fn q(&self){} }\n"
            "impl<X> G<X> { fn n(){} }\nmacro_rules! mm { () => {} }\n"
        ),
        [
            "2 module m",
            "2 func m.f",
            "3 struct S",
            "3 enum E",
            "4 trait T",
            "4 method T.q",
            "5 method S.q",
            "6 method G<X>.n",
            "7 macro mm",
        ],
        [1],
    ),
    "a.java": (
        "import java.util.*;\npublic class A { int x; A(){} void m(){} interface I{ void z(); } }\nrecord R(int a){}\nenum E{A,B}\n",
        ["2 class A", "2 method A.A", "2 method A.m", "2 interface A.I", "2 method A.I.z", "3 record R", "4 enum E"],
        [1],
    ),
    "a.c": (
        (
            "#include <stdio.h>\n#define X 1\n#define F(a) a\nstruct S {int a;};\nstruct S *mk(int a);\ntypedef struct {int b;} T;\n"
            "typedef int (*fp)(int);\nstatic int *f(int a) { struct S s; return 0; }\nint g;\nenum E {A,B};\n"
        ),
        [
            "2 macro X",
            "3 macro F",
            "4 struct S",
            "5 declaration mk",
            "6 type T",
            "7 type fp",
            "8 func f",
            "10 enum E",
        ],
        [1],
    ),
}


@table("path", CASES)
def test_outlines(path):
    text, symbols, imports = CASES[path]
    found_outline = make_outline(text, path)
    assert [f"{each.line} {each.kind} {each.path}" for each in found_outline.symbols] == symbols
    assert found_outline.imports == imports


def test_what_is_in_no_language():
    assert make_outline("x", "readme.md") is None
    assert make_outline("x", "Makefile") is None


def test_what_cannot_be_parsed_has_no_outline(monkeypatch):
    assert make_outline("def f(): pass\n" * 200_000, "a.py") is None
    monkeypatch.setattr(parser, "parse", lambda *_: None)
    assert make_outline("def f(): pass\n", "a.py") is None
    assert find_syntax_error("(", "a.py") is None


@table(("text", "path"), [("[" * 300_000 + "]" * 300_000, "a.py"), ("{" * 300_000, "a.js")])
def test_three_hundred_thousand_brackets(text, path):
    outline = make_outline(text, path)
    assert outline is None or outline.symbols == []


@table("language", LANGUAGES, ids=lambda each: each.name)
@table(
    "text",
    [
        "",
        "\0",
        "\ud800",
        "(" * 5_000,
        "[" * 2_500 + "]" * 2_500,
        "{" * 5_000,
        "class A{" * 1_000,
        "\"'`" * 3_000,
        "\n" * 10_000,
        "".join(" " * depth + "if x:\n" for depth in range(300)),
    ],
    ids=["empty", "null", "surrogate", "open", "nested", "braces", "classes", "quotes", "lines", "indented"],
)
def test_odd_texts(language, text):
    make_outline(text, f"a{language.suffixes[0]}")
    assert make_outline("", f"a{language.suffixes[0]}") is not None


@table(
    ("path", "text", "line"),
    [
        ("a.py", "def f():\n    return 1\n", None),
        ("a.py", "def f():\n    return (1\n", 2),
        ("a.py", "x = 1\ndef f(:\n    pass\n", 2),
        ("a.go", "package a\n\nfunc f() {\n", 3),
        ("a.js", "const a = {\n", 1),
        ("a.md", "(", None),
        ("a.py", "", None),
    ],
)
def test_broken_lines(path, text, line):
    number = find_syntax_error(text, path)
    assert number == line or (line is not None and number is not None and number >= line)


def test_a_text_that_takes_too_long(monkeypatch):
    monkeypatch.setattr(tree_sitter_parsing, "SECONDS", 0.0)
    assert tree_sitter_parsing.parse_tree("(" * 100_000, find_language("a.py")) is None
