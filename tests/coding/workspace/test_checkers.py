"""What is read from the output of checkers, whole and spoilt."""

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.workspace.checkers import CHECKERS, CheckFinding

MYPY = {
    "file": "a.py",
    "line": 3,
    "column": 11,
    "message": "wrong",
    "hint": None,
    "code": "arg-type",
    "severity": "error",
}
RUFF = {"filename": "/r/a.py", "location": {"column": 1, "row": 2}, "code": "F401", "message": "`os` is not used"}
PYRIGHT = {
    "version": "1.1",
    "generalDiagnostics": [
        {
            "file": "/r/a.py",
            "severity": "error",
            "message": "wrong",
            "range": {"start": {"line": 2}},
            "rule": "reportX",
        },
        {"file": "/r/a.py", "severity": "warning", "message": "perhaps", "range": {"start": {"line": 4}}},
    ],
}
ESLINT = [
    {"filePath": "/r/a.js", "messages": [{"ruleId": "no-undef", "severity": 2, "message": "no 'foo'", "line": 1}]},
    {"filePath": "/r/b.js", "messages": [{"ruleId": None, "fatal": True, "message": "Parsing error", "line": 7}]},
]
VET = '{\n\t"x": {\n\t\t"printf": [\n\t\t\t{"posn": "/r/a.go:3:24", "message": "wrong type"}\n\t\t]\n\t}\n}\n'
OUTPUTS = {
    "mypy": (
        f"{json.dumps(MYPY)}\n{json.dumps({**MYPY, 'severity': 'note'})}\n",
        [CheckFinding("a.py", 3, "arg-type", "wrong")],
    ),
    "ruff": (f"warning: old\n{json.dumps([RUFF], indent=1)}", [CheckFinding("/r/a.py", 2, "F401", "`os` is not used")]),
    "pyright": (f"a newer version exists\n{json.dumps(PYRIGHT)}", [CheckFinding("/r/a.py", 3, "reportX", "wrong")]),
    "tsc": (
        "src/a.ts(1,7): error TS2322: Type 'number' is no string.\n  It is a number.\n",
        [CheckFinding("src/a.ts", 1, "TS2322", "Type 'number' is no string.")],
    ),
    "eslint": (
        json.dumps(ESLINT),
        [CheckFinding("/r/a.js", 1, "no-undef", "no 'foo'"), CheckFinding("/r/b.js", 7, "syntax", "Parsing error")],
    ),
    "go vet": (
        f"# x\n{VET}# y\nvet: ./b.go:2:12: undefined: foo\n",
        [CheckFinding("/r/a.go", 3, "printf", "wrong type"), CheckFinding("./b.go", 2, "build", "undefined: foo")],
    ),
}


def of(name):
    return next(each for each in CHECKERS if each.name == name)


@table("name", OUTPUTS)
def test_what_checkers_print(name):
    text, findings = OUTPUTS[name]
    assert of(name).parse(text) == findings


def test_each_checker_has_an_output_here():
    assert OUTPUTS.keys() == {each.name for each in CHECKERS}


@table("name, text", [("ruff", "[]"), ("ruff", "[]\n"), ("mypy", ""), ("tsc", ""), ("eslint", "[]"), ("go vet", "")])
def test_nothing_was_found(name, text):
    assert of(name).parse(text) == []


@table("name", sorted(OUTPUTS.keys() - {"go vet"}))
def test_what_is_no_report(name):
    for text in ("error: bad option", "{", "[" * 100_000, '[{"x": 1}]', '{"generalDiagnostics": 5}'):
        assert of(name).parse(text) is None


@given(name=st.sampled_from(sorted(OUTPUTS)), data=st.data())
def test_spoilt_output_is_read_without_complaint(name, data):
    text, _ = OUTPUTS[data.draw(st.sampled_from(sorted(OUTPUTS)))]
    begin, end = sorted(data.draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
    spoilt = text[:begin] + data.draw(st.text(max_size=30)) + text[end:]
    assert all(isinstance(each, CheckFinding) for each in of(name).parse(spoilt) or [])


@table(
    "files, names",
    [
        ({"pyproject.toml": "[project]\nname = 'x'\n"}, []),
        ({"pyproject.toml": "[tool.mypy]\n[tool.ruff.lint]\n[tool.pyright]\n"}, ["mypy", "pyright", "ruff"]),
        ({"setup.cfg": "[mypy-x.*]\n"}, ["mypy"]),
        ({"mypy.ini": "", "ruff.toml": "", "pyrightconfig.json": "{}"}, ["mypy", "pyright", "ruff"]),
        ({"tsconfig.json": "{}", "eslint.config.mjs": ""}, ["tsc", "eslint"]),
        ({"package.json": '{"eslintConfig": {}}'}, ["eslint"]),
        ({"package.json": "{}"}, []),
        ({"go.mod": ""}, ["go vet"]),
    ],
)
def test_settings(files, names):
    assert [each.name for each in CHECKERS if each.is_configured(files)] == names
