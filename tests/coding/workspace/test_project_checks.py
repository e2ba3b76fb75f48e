"""Findings that are new since the first edit, by checkers that are really run."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.tables import table

from callboard.coding.workspace import project_checks
from callboard.coding.workspace.project_checks import MAX_NAMED, ProjectChecks
from callboard.coding.workspace.workspace import Workspace
from callboard.core import ResultCanister, contents
from callboard.sandbox import Confinement, find_sandbox

OLD = "import os\n\n\ndef double(number: int) -> int:\n    return number + number\n"
TITLE = "New findings of the project's checkers since the first edit:"


@asynccontextmanager
async def checks_of(root, *, unconfined=True, programs=Path(sys.executable).parent):
    confinement = Confinement(workspace=root, environment={"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"})
    workspace = Workspace(root, sandbox=await find_sandbox(unconfined=True), confinement=confinement)
    await workspace.connect()
    try:
        yield ProjectChecks(workspace, unconfined=unconfined)
    finally:
        await workspace.disconnect()


def after(root, edit, paths=("a.py",), **given):
    """What the result of an edit says, and of the same edit once more."""

    async def run():
        async with checks_of(root, **given) as checks:
            await checks.begin()
            edit()
            result = ResultCanister(invocation_id="call_1", content=contents("Edited"))
            added = [await checks.add([*paths], result) for _ in range(2)]
            return [each.text.removeprefix("Edited").strip() for each in added]

    return asyncio.run(run())


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.py").write_text(OLD)
    return folder


def configure(root, text):
    (root / "pyproject.toml").write_text(text)


def test_old_findings_that_moved_are_not_named(root):
    """`import os` was there before, and is two lines further down now."""
    configure(root, "[tool.ruff]\n")
    text = "# one\n# two\n" + OLD.replace("import os\n", "import os\nimport sys\n")
    said, again = after(root, lambda: (root / "a.py").write_text(text))
    assert said == f"{TITLE}\n- a.py:4: `sys` imported but unused [F401] (ruff)"
    assert again == said
    assert after(root, lambda: (root / "a.py").write_text(f"# three\n{text}")) == ["", ""]


def test_a_type_error_in_another_file(root):
    configure(root, "[tool.mypy]\n")
    (root / "b.py").write_text("from a import double\n\nprint(double(2))\n")
    before = sorted(root.iterdir())
    said, _ = after(root, lambda: (root / "a.py").write_text(OLD.replace("number: int", "number: str")))
    assert '- b.py:3: Argument 1 to "double" has incompatible type "int"; expected "str" [arg-type] (mypy)' in said
    assert sorted(root.iterdir()) == before


def test_settings_in_a_folder(root):
    (root / "web").mkdir()
    (root / "web" / "ruff.toml").touch()
    (root / "web" / "x.py").write_text("")

    def edit():
        (root / "web" / "x.py").write_text("import os\n")
        (root / "a.py").write_text("import sys\n")

    assert "- web/x.py:1: `os` imported" in after(root, edit, ["web/x.py"])[0]
    assert after(root, edit, ["a.py"]) == ["", ""]


def test_nothing_runs_without_settings(root, monkeypatch):
    monkeypatch.setattr(project_checks, "run_command", None)
    configure(root, "[project]\nname = 'x'\n")
    assert after(root, lambda: (root / "a.py").write_text("import sys\n")) == ["", ""]
    # Settings of a checker can be a program; without a sandbox, a person is asked about programs.
    configure(root, "[tool.ruff]\n")
    assert after(root, lambda: (root / "a.py").write_text("import sys\n"), unconfined=False) == ["", ""]


def test_at_most_ten_findings_are_named(root):
    configure(root, "[tool.ruff]\n")
    lines = "".join([f"import x{number}\n" for number in range(30)])
    said, _ = after(root, lambda: (root / "a.py").write_text(OLD + lines))
    assert said.count("\n- ") == MAX_NAMED
    assert said.splitlines()[-1].startswith("and ")


def test_a_syntax_error_is_named(root):
    said, _ = after(root, lambda: (root / "a.py").write_text("def f(:\n"))
    assert said == "a.py does not parse; the first syntax error is at line 1."


def program(folder, name, script):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


UNABLE = {
    "missing": (
        "echo /usr/bin/python3: No module named ruff; exit 1",
        "ruff is configured but not installed; python3 -m pip install ruff installs it.",
    ),
    "broken": ("echo bad settings; exit 2", "ruff cannot check the project: bad settings"),
    "slow": ("sleep 60", "ruff takes longer than 1 s and is turned off."),
}


@table("name", UNABLE)
def test_a_checker_that_cannot_run_says_so_once(root, tmp_path, monkeypatch, name):
    script, sentence = UNABLE[name]
    monkeypatch.setattr(project_checks, "SECONDS", 1.0)
    configure(root, "[tool.ruff]\n")
    program(tmp_path / name, "python3", script)
    edit = lambda: (root / "a.py").write_text("import sys\n")  # noqa: E731
    assert after(root, edit, programs=tmp_path / name) == [sentence, ""]


def test_the_tools_of_a_project_of_javascript(root):
    (root / "eslint.config.mjs").touch()
    (root / "x.js").write_text("one()\n")
    message = '{"ruleId": "no-undef", "severity": 2, "message": "no foo", "line": 2}'
    report = f'[{{"filePath": "{root}/x.js", "messages": [{message}]}}]'
    program(
        root / "node_modules" / ".bin",
        "eslint",
        f"grep -q foo x.js || {{ echo '[]'; exit 0; }}; echo '{report}'; exit 1",
    )
    said, _ = after(root, lambda: (root / "x.js").write_text("one()\nfoo()\n"), ["x.js"])
    assert said == f"{TITLE}\n- x.js:2: no foo [no-undef] (eslint)"
