"""Repositories with several projects: which are tested, and what one report says of all."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.coding.test_runners.test_run_tests import QUICK, outcome_of
from tests.tables import table

from callboard.coding.test_runners.projects import detect_runners, find_projects
from callboard.coding.workspace.workspace import Workspace

PYTHON = {"pyproject.toml": "[project]\nname = 'calc'\n", "tests/test_calc.py": "def test_add(): pass\n"}
SCRIPT = json.dumps({"scripts": {"test": "node --test"}})
NODE = {
    "package.json": SCRIPT,
    "x.test.js": 'require("node:test")("adds", () => require("node:assert").strictEqual(1 - 1, 2));\n',
}


def below(folder, files):
    return {f"{folder}/{name}": text for name, text in files.items()}


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def projects_of(root, folder="", **given):
    async def look():
        workspace = Workspace(root, sandbox=object())
        await workspace.connect()
        try:
            return find_projects(workspace, folder, **given)
        finally:
            await workspace.disconnect()

    return [(each.path, detect_runners(each)[0].name) for each in asyncio.run(look())]


CRATE = {"Cargo.toml": "[package]\nname = 'x'\n"}
LAYOUTS = {
    "a root alone": (PYTHON, [("", "pytest")]),
    "a page beside Python": ({**PYTHON, **below("frontend", NODE)}, [("", "pytest"), ("frontend", "npm test")]),
    "a page without tests": ({**PYTHON, "docs/package.json": "{}", "web/package.json": "{}"}, [("", "pytest")]),
    "a project in the material of tests": ({**PYTHON, **below("tests/material", NODE)}, [("", "pytest")]),
    "installed packages": ({**PYTHON, **below("node_modules/x", NODE)}, [("", "pytest")]),
    "services with settings in the root": (
        {"pyproject.toml": "[tool.ruff]\n", **below("services/a", PYTHON), **below("services/b", PYTHON)},
        [("services/a", "pytest"), ("services/b", "pytest")],
    ),
    "services that the root's pytest finds": ({**PYTHON, **below("services/a", PYTHON)}, [("", "pytest")]),
    "services beside the folders of the root's pytest": (
        {
            **PYTHON,
            "pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['tests']\n",
            **below("services/a", PYTHON),
        },
        [("", "pytest"), ("services/a", "pytest")],
    ),
    "npm workspaces": (
        {"package.json": '{"workspaces": ["packages/*"]}', **below("packages/a", NODE), **below("packages/b", NODE)},
        [("packages/a", "npm test"), ("packages/b", "npm test")],
    ),
    "npm workspaces with a script in the root": (
        {"package.json": SCRIPT, **below("packages/a", NODE)},
        [("", "npm test")],
    ),
    "modules of Go": (
        {"go.work": "go 1.27\n", "a/go.mod": "module a\n", "b/go.mod": "module b\n"},
        [("a", "go test"), ("b", "go test")],
    ),
    "a module in a module": (
        {"go.mod": "module x\n", "tools/go.mod": "module y\n"},
        [("", "go test"), ("tools", "go test")],
    ),
    "a workspace of cargo": (
        {"Cargo.toml": "[workspace]\nmembers = ['a']\n", **below("a", CRATE)},
        [("", "cargo test")],
    ),
    "crates alone": ({**below("a", CRATE), **below("b", CRATE)}, [("a", "cargo test"), ("b", "cargo test")]),
    "a makefile for all": ({"Makefile": "test:\n\ttrue\n", **below("a", PYTHON)}, [("", "make")]),
    "nothing": ({"README.md": ""}, []),
}


@table("name", LAYOUTS)
def test_layouts(tmp_path, name):
    files, projects = LAYOUTS[name]
    assert projects_of(write(tmp_path / name, files)) == projects


def test_one_project_can_be_chosen(tmp_path):
    write(tmp_path, {**PYTHON, **below("frontend", NODE)})
    assert projects_of(tmp_path, package="frontend") == [("frontend", "npm test")]
    assert projects_of(tmp_path, kind="npm") == [("frontend", "npm test")]
    assert projects_of(tmp_path, "frontend") == [("frontend", "npm test")]


def test_links_lead_to_no_project(tmp_path):
    write(tmp_path / "outside", PYTHON)
    write(tmp_path / "root", PYTHON)
    (tmp_path / "root" / "more").symlink_to(tmp_path / "outside")
    assert projects_of(tmp_path / "root") == [("", "pytest")]


@pytest.mark.skipif(not shutil.which("npm"), reason="there is no npm")
def test_one_report_of_all(tmp_path):
    report = outcome_of(write(tmp_path, {**PYTHON, **below("frontend", NODE)}))
    assert report.headline == "2 projects: 1 failed, 1 passed"
    assert [(each.name, each.location) for each in report.failures] == [("adds", "frontend/x.test.js:1")]
    assert report.notes == ("(pytest: 1 passed)", "(npm test in frontend: 1 failed)")
    assert not report.is_good
    # What is not installed is named, and the rest counts.
    (tmp_path / "frontend" / "package.json").write_text(
        '{"scripts": {"test": "jest"}, "devDependencies": {"jest": "30"}}'
    )
    report = outcome_of(tmp_path)
    assert report.is_good
    missing = "jest is not installed; npm install in frontend installs it"
    assert report.notes == ("(pytest: 1 passed)", f"(npm test in frontend: not tested: {missing})")


def program(tmp_path, monkeypatch, name, script):
    """A program of this name, first on PATH."""
    (tmp_path / "programs").mkdir(exist_ok=True)
    path = tmp_path / "programs" / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setitem(QUICK, "PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")


@table("name, manifest", [("tox", {"tox.ini": "[tox]\n"}), ("nox", {"noxfile.py": ""})])
def test_the_pytest_of_tox_and_nox_writes_the_report(tmp_path, monkeypatch, name, manifest):
    """The project's own Python has no pytest; that of tox's environment has."""
    program(tmp_path, monkeypatch, name, f"exec {sys.executable} -m pytest -q")
    program(tmp_path, monkeypatch, "python3", "echo No module named pytest; exit 1")
    root = write(tmp_path / name, {**manifest, "test_x.py": "def test_a(): pass\ndef test_b(): assert 0\n"})
    report = outcome_of(root)
    assert report.headline == f"{name}: 1 failed, 1 passed"
    assert report.failures[0].name == "test_x.py::test_b"


def test_a_dependency_that_is_not_installed(tmp_path):
    manifest = "[project]\nname = 'calc'\ndependencies = ['nothing-here>=1']\n"
    root = write(tmp_path, {"pyproject.toml": manifest, "test_x.py": "import nothing_here\n"})
    report = outcome_of(root)
    python = Path(sys.executable).parent / "python3"
    assert report.headline == (
        f"pytest: not tested: nothing_here is not installed in {python}; {python} -m pip install nothing_here installs it"
    )
    # A module that the project does not require is a mistake in its code.
    (root / "pyproject.toml").write_text("[project]\nname = 'calc'\n")
    assert outcome_of(root).headline == "pytest: 1 error"


@table(
    "files, runner, sentence",
    [
        (CRATE, "cargo", "cargo is not installed; https://rustup.rs installs it"),
        ({"go.mod": "module x\n"}, "go", "go is not installed; https://go.dev/dl has it"),
        (
            {"package.json": "{}"},
            "npm",
            "Node.js is not installed; https://nodejs.org/en/download installs it with npm",
        ),
        ({"Makefile": "test:\n"}, "make", "make is not installed; apt install make installs it"),
    ],
)
def test_a_program_that_is_not_installed(tmp_path, monkeypatch, files, runner, sentence):
    (tmp_path / "programs").mkdir(exist_ok=True)
    monkeypatch.setitem(QUICK, "PATH", str(tmp_path / "programs"))
    report = outcome_of(write(tmp_path / runner, files), kind=runner)
    assert report.not_tested == sentence
    assert not report.is_good


def test_a_package_in_src_that_is_not_installed(tmp_path):
    tests = "from calc import add\ndef test_add(): assert add(1, 1) == 2\n"
    files = {"pyproject.toml": "", "src/calc/__init__.py": "def add(a, b): return a + b\n", "tests/test_calc.py": tests}
    assert outcome_of(write(tmp_path, files)).is_good
