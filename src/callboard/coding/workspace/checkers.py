"""The table of checkers: type checkers and linters, how each is recognised, started and read.

Law: a checker is known by its own settings in the repository. Its output is hostile input: what cannot be read is no
finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from callboard.coding.test_runners.report import decode_json

_VALUE = TypeVar("_VALUE")
_TSC = re.compile(r"(\S[^\n(]*)\((\d+),\d+\): error (TS\d+): (.*)")
_VET = re.compile(r"(?:vet: )?(\S+?\.go):(\d+)(?::\d+)?: (.*)")
_NUMBER = re.compile(r"\d+")
MAX_FINDINGS: Final = 10_000
"""Findings of one run that are read."""
MAX_WARNINGS: Final = 20_000
"""Characters of warnings before a report."""
MAX_STARTS: Final = 20
"""Lines at which a report may begin."""
MAX_MESSAGE: Final = 500
"""Characters of a message."""


class CheckFinding(msgspec.Struct, frozen=True):
    """An error or a warning of a checker."""

    path: str
    """The file as the checker spells it."""
    line: int
    rule: str
    message: str

    def key(self, text: str) -> tuple[str, str, str, str]:
        """Return what makes two findings the same one; `text` is the line. Numbers of lines change with each edit."""
        return self.path, self.rule, _NUMBER.sub("", self.message), text.strip()


class Checker(msgspec.Struct, frozen=True, kw_only=True):
    """One checker."""

    name: str
    settings: Mapping[str, str]
    """The files with its settings, and the text that such a file must have; "" for any."""
    words: str
    """The words of its command; `{python}` is the interpreter and `{cache}` a folder for caches."""
    parse: Callable[[str], list[CheckFinding] | None]
    """Reads the output; None if there is no report in it."""
    install: str
    """The command that installs it; `{python}` is the interpreter."""
    suffixes: tuple[str, ...]
    """The files that it checks."""

    def is_configured(self, texts: Mapping[str, str]) -> bool:
        """Return whether the settings files of a folder, by name, have settings of this checker."""
        return any(name in texts and part in texts[name] for name, part in self.settings.items())

    def command(self, python: str, cache: str) -> list[str]:
        """Return the command."""
        return [word.format(python=python, cache=cache) for word in self.words.split()]


class _Mypy(msgspec.Struct):
    file: str
    line: int
    message: str
    code: str | None = None
    severity: str = "error"


class _Row(msgspec.Struct):
    row: int = 0


class _Ruff(msgspec.Struct):
    filename: str
    message: str
    location: _Row
    code: str | None = None


class _Position(msgspec.Struct):
    line: int = 0


class _Range(msgspec.Struct):
    start: _Position


class _PyrightDiagnostic(msgspec.Struct):
    file: str
    severity: str
    message: str
    range: _Range = msgspec.field(default_factory=lambda: _Range(_Position()))
    rule: str = ""


class _Pyright(msgspec.Struct, rename="camel"):
    general_diagnostics: list[_PyrightDiagnostic]


class _EslintMessage(msgspec.Struct, rename="camel"):
    message: str
    rule_id: str | None = None
    line: int = 0


class _EslintFile(msgspec.Struct, rename="camel"):
    file_path: str
    messages: list[_EslintMessage]


class _VetFinding(msgspec.Struct):
    posn: str
    message: str


def _decode_after_warnings(text: str, kind: type[_VALUE]) -> _VALUE | None:
    """Decode the JSON that may follow a few lines of warnings."""
    starts = [0, *(match.end() for match in re.finditer(r"\n(?=[\[{])", text[:MAX_WARNINGS]))][:MAX_STARTS]
    values = (decode_json(text[start:], kind) for start in starts)
    return next((value for value in values if value is not None), None)


def parse_mypy(text: str) -> list[CheckFinding] | None:
    """Read `mypy --output=json`: a line for each finding."""
    lines = [line for line in text.splitlines() if line.strip()]
    rows = [row for line in lines if line.startswith("{") and (row := decode_json(line, _Mypy))]
    findings = [
        CheckFinding(row.file, row.line, row.code or "", row.message) for row in rows if row.severity == "error"
    ]
    return findings if rows or not lines else None


def parse_ruff(text: str) -> list[CheckFinding] | None:
    """Read `ruff check --output-format=json`."""
    if (rows := _decode_after_warnings(text, list[_Ruff])) is None:
        return None
    return [CheckFinding(row.filename, row.location.row, row.code or "syntax", row.message) for row in rows]


def parse_pyright(text: str) -> list[CheckFinding] | None:
    """Read `pyright --outputjson`, whose lines begin at 0."""
    if (report := _decode_after_warnings(text, _Pyright)) is None:
        return None
    return [
        CheckFinding(each.file, each.range.start.line + 1, each.rule, each.message)
        for each in report.general_diagnostics
        if each.severity == "error"
    ]


def parse_tsc(text: str) -> list[CheckFinding] | None:
    """Read `tsc --pretty false`, which has one line for each error."""
    matches = [match for line in text.splitlines() if (match := _TSC.fullmatch(line))]
    findings = [CheckFinding(match[1], int(match[2][:9]), match[3], match[4]) for match in matches]
    return findings if findings or not text.strip() else None


def parse_eslint(text: str) -> list[CheckFinding] | None:
    """Read `eslint --format=json`."""
    if (files := _decode_after_warnings(text, list[_EslintFile])) is None:
        return None
    return [
        CheckFinding(file.file_path, each.line, each.rule_id or "syntax", each.message)
        for file in files
        for each in file.messages
    ]


def parse_vet(text: str) -> list[CheckFinding] | None:
    """Read `go vet -json`: a JSON object for each package, and lines of the compiler."""
    findings: list[CheckFinding] = []
    objects = re.split(r"^(?=\{$)|(?<=^\}\n)", text, flags=re.MULTILINE)
    for part in objects:
        packages = decode_json(part, dict[str, dict[str, list[_VetFinding]]]) if part.startswith("{") else None
        for analyzers in (packages or {}).values():
            for rule, rows in analyzers.items():
                for row in rows:
                    path, line = [*row.posn.rsplit(":", 2), "", ""][:2]
                    findings.append(CheckFinding(path, int(line[:9]) if line.isdecimal() else 0, rule, row.message))
        if packages is None:
            matches = [match for line in part.splitlines() if (match := _VET.fullmatch(line))]
            findings += [CheckFinding(match[1], int(match[2][:9]), "build", match[3]) for match in matches]
    return findings


_PYTHON: Final = (".py", ".pyi")
_JAVASCRIPT: Final = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts")
_PIP: Final = "{python} -m pip install "

CHECKERS: Final[tuple[Checker, ...]] = (
    Checker(
        name="mypy",
        settings={"mypy.ini": "", ".mypy.ini": "", "pyproject.toml": "[tool.mypy", "setup.cfg": "[mypy"},
        words="{python} -m mypy --output=json --no-error-summary --show-error-codes --cache-dir={cache}/mypy .",
        parse=parse_mypy,
        install=f"{_PIP}mypy",
        suffixes=_PYTHON,
    ),
    Checker(
        name="pyright",
        settings={"pyrightconfig.json": "", "pyproject.toml": "[tool.pyright"},
        words="{python} -m pyright --outputjson",
        parse=parse_pyright,
        install=f"{_PIP}pyright",
        suffixes=_PYTHON,
    ),
    Checker(
        name="ruff",
        settings={"ruff.toml": "", ".ruff.toml": "", "pyproject.toml": "[tool.ruff"},
        words="{python} -m ruff check --output-format=json --no-cache --quiet .",
        parse=parse_ruff,
        install=f"{_PIP}ruff",
        suffixes=_PYTHON,
    ),
    Checker(
        name="tsc",
        settings={"tsconfig.json": ""},
        words="node_modules/.bin/tsc --noEmit --pretty false",
        parse=parse_tsc,
        install="npm install",
        suffixes=_JAVASCRIPT,
    ),
    Checker(
        name="eslint",
        settings={
            **{f"eslint.config.{end}": "" for end in ("js", "mjs", "cjs", "ts")},
            **{f".eslintrc{end}": "" for end in ("", ".json", ".js", ".cjs", ".yml", ".yaml")},
            "package.json": '"eslintConfig"',
        },
        words="node_modules/.bin/eslint --format=json .",
        parse=parse_eslint,
        install="npm install",
        suffixes=_JAVASCRIPT,
    ),
    Checker(
        name="go vet",
        settings={"go.mod": ""},
        words="go vet -json ./...",
        parse=parse_vet,
        install="https://go.dev/dl",
        suffixes=(".go",),
    ),
)

SETTINGS_FILES: Final[Sequence[str]] = tuple(dict.fromkeys(name for each in CHECKERS for name in each.settings))
"""All files that may have settings of a checker."""
