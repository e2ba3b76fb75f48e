"""Tests of small projects, really run."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from callboard.coding.test_runners import Selection, run_tests
from callboard.coding.workspace.workspace import Workspace
from callboard.errors import CallerError
from callboard.sandbox import Confinement, SandboxUnavailable, find_sandbox

# The first Python on PATH is ours, and the plug-ins that are installed with it are not loaded.
QUICK = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}


def outcome_of(root, *, borrowed=None, without=True, **given):
    async def run():
        sandbox = await find_sandbox(unconfined=without)
        confinement = Confinement(workspace=root, bind_mounts=borrowed or {}, environment=QUICK)
        workspace = Workspace(root, sandbox=sandbox, confinement=confinement)
        await workspace.connect()
        try:
            return await run_tests(workspace, **given)
        finally:
            await workspace.disconnect()

    return asyncio.run(run())


@pytest.fixture
def project(tmp_path):
    """A function that is wrong, and its tests."""
    root = tmp_path / "project"
    (root / "tests").mkdir(parents=True)
    (root / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (root / "tests" / "test_calc.py").write_text(
        "import unittest\nfrom calc import add\n\nclass T(unittest.TestCase):\n"
        "    def test_zero(self):\n        self.assertEqual(add(0, 0), 0)\n\n"
        "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n"
    )
    return root


def test_python(project):
    before = sorted(path for path in project.rglob("*") if path.is_file())
    report = outcome_of(project)
    assert (report.passed, report.failed, report.is_good) == (1, 1, False)
    assert report.failures[0].location == "tests/test_calc.py:9"
    assert sorted(path for path in project.rglob("*") if path.is_file()) == before
    assert outcome_of(project, selection=Selection(run="zero", package="./...")).is_good
    (project / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    report = outcome_of(project, digest=lambda: asyncio.sleep(0, "name"))
    assert report.is_good
    assert report.digest == "name"


def test_a_time_in_a_message_is_not_a_place(project):
    (project / "tests" / "test_calc.py").write_text(
        "def last(line):\n    return None\n\n\ndef test_time():\n"
        "    assert last('12/Mar/2026:10:04:31 +0100') == '12/Mar/2026:10:04:31 +0100'\n"
    )
    assert outcome_of(project).failures[0].location == "tests/test_calc.py:6"


def test_files_that_tests_write_into_their_home_are_not_reports(project):
    (project / "tests" / "test_calc.py").write_text(
        "from pathlib import Path\n\n\ndef test_home():\n    (Path.home() / 'settings.json').write_text('{}')\n"
    )
    assert outcome_of(project).is_good


def test_the_tree_is_tested_not_what_is_installed_of_it(project, tmp_path):
    """An editable install of the user's own tree would be found first, if the tree's own sources were not."""
    environment = tmp_path / "user" / ".venv"
    packages = environment / "lib" / f"python{'.'.join(sys.version.split('.')[:2])}" / "site-packages"
    packages.mkdir(parents=True)
    (environment / "bin").mkdir()
    (environment / "bin" / "python").symlink_to(sys.executable)
    (environment / "pyvenv.cfg").write_text(f"home = {Path(os.path.realpath(sys.executable)).parent}\n")
    (tmp_path / "user" / "calc.py").write_text("def add(a, b):\n    return a + b\n")
    (packages / "user.pth").write_text(f"{tmp_path / 'user'}\n")
    report = outcome_of(project, borrowed={".venv": environment})
    assert report.command[0] == str(environment / "bin" / "python")
    assert report.failed == 1
    (project / "src").mkdir()
    (project / "calc.py").rename(project / "src" / "calc.py")
    assert outcome_of(project, borrowed={".venv": environment}).failed == 1


def test_unittest_where_there_is_no_pytest(project, tmp_path):
    """A Python that cannot import it, since it sees no site-packages."""
    environment = tmp_path / "bare"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (environment / "pyvenv.cfg").write_text(
        f"home = {Path(os.path.realpath(sys.executable)).parent}\ninclude-system-site-packages = false\n"
    )
    report = outcome_of(project, borrowed={".venv": environment})
    assert report.runner == "unittest"
    assert (report.passed, report.failed) == (1, 1)
    assert report.failures[0].location == "tests/test_calc.py:9"
    python = environment / "bin" / "python"
    sentence = f"pytest is not installed in {python}; {python} -m pip install pytest installs it"
    assert report.summary.endswith(f"({sentence}; unittest ran instead)")


def test_it_is_run_as_often_as_asked(project):
    (project / "tests" / "test_calc.py").write_text(
        "from pathlib import Path\n\ndef test_three_times():\n"
        "    count = len(list(Path('.').glob('ran-*')))\n    Path(f'ran-{count}').touch()\n    assert count < 2\n"
    )
    assert outcome_of(project, selection=Selection(count=2)).is_good
    assert not outcome_of(project, selection=Selection(count=5)).is_good
    assert len(list(project.glob("ran-*"))) == 3


def test_a_run_that_never_ends_is_ended(project):
    (project / "tests" / "test_calc.py").write_text("def test_x():\n    while True: pass\n")
    report = outcome_of(project, seconds=2)
    assert (report.code, report.complete, report.is_good) == (None, False, False)
    assert "stopped: it had 2 s" in report.headline


@pytest.mark.parametrize(
    ("body", "good"),
    [
        ("import os\ndef test_x():\n    print('1 passed in 0.01s', flush=True)\n    os._exit(0)\n", False),
        ("import sys\ndef test_x():\n    print('\\n=== 1 passed in 0.01s ===')\n    assert False\n", False),
        (
            "import atexit\natexit.register(lambda: print('=== 9 passed in 0.01s ==='))\ndef test_x():\n    assert False\n",
            False,
        ),
        ("import nothing\n", False),
        ("def test_x(): pass\n", True),
        ("", False),
    ],
)
def test_what_tests_print_makes_nothing_good(project, body, good):
    (project / "tests" / "test_calc.py").write_text(body)
    assert outcome_of(project).is_good is good


def test_a_folder_beneath(project, tmp_path):
    root = tmp_path / "mono"
    root.mkdir()
    project.rename(root / "backend")
    (root / "backend" / "pyproject.toml").write_text("")
    for given in ({}, {"folder": "backend"}, {"selection": Selection(package="backend")}):
        report = outcome_of(root, **given)
        assert (report.passed, report.failed) == (1, 1)
        assert report.failures[0].location == "backend/tests/test_calc.py:9"
        assert report.failures[0].name == "backend/tests/test_calc.py::T::test_add"


def test_what_nothing_says_how_to_test(tmp_path, project):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CallerError, match="type is one of go, python, cargo, npm, make"):
        outcome_of(tmp_path / "empty")
    with pytest.raises(CallerError, match="type is one of"):
        outcome_of(project, kind="maven")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"package": "--rootdir=/"}, "package: '--rootdir=/' is no name"),
        ({"module": "-x"}, "module: '-x' is no name"),
        ({"run": "--help"}, "run: '--help' is no name"),
        ({"script": "-f /etc/x"}, "script: "),
        ({"package": "a\nb"}, "is no name"),
        ({"count": 0}, "tests run 1 to 20 times"),
        ({"count": 1000}, "tests run 1 to 20 times"),
    ],
)
def test_what_would_be_an_option(project, given, words):
    with pytest.raises(CallerError, match=words):
        outcome_of(project, selection=Selection(**given))


def test_what_a_runner_does_not_know_is_told(project):
    assert "(script: not used by pytest)" in outcome_of(project, selection=Selection(script="x")).summary


def test_without_a_sandbox(project):
    async def run():
        workspace = Workspace(project, sandbox=object())
        await workspace.connect()
        workspace.sandbox, workspace.sandbox_error = None, "there is none here"
        try:
            await run_tests(workspace)
        finally:
            await workspace.disconnect()

    with pytest.raises(SandboxUnavailable, match="there is none here; --no-sandbox"):
        asyncio.run(run())


@pytest.mark.skipif(not shutil.which("npm"), reason="there is no npm")
def test_node(tmp_path):
    (tmp_path / "package.json").write_text('{"name": "x", "scripts": {"test": "node --test"}}')
    (tmp_path / "x.test.js").write_text(
        'const test = require("node:test");\nconst assert = require("node:assert");\n'
        'test("adds", () => assert.strictEqual(1 - 1, 2));\ntest("zero", () => {});\n'
    )
    report = outcome_of(tmp_path)
    assert (report.runner, report.passed, report.failed) == ("npm test", 1, 1)
    assert report.failures[0].location == "x.test.js:3"
    assert outcome_of(tmp_path, selection=Selection(run="zero")).is_good


@pytest.mark.skipif(not shutil.which("node"), reason="there is no node")
def test_the_name_of_a_test_in_a_folder(tmp_path):
    page = tmp_path / "page"
    page.mkdir()
    (page / "package.json").write_text("{}")
    (page / "x.test.js").write_text('require("node:test")("std::max", () => { throw new Error("bad"); });\n')
    (failure,) = outcome_of(tmp_path, folder="page").failures
    assert (failure.name, failure.location) == ("std::max", "page/x.test.js:1")


@pytest.mark.skipif(not shutil.which("make") or not shutil.which("cc"), reason="there is no make or no cc")
def test_make(tmp_path):
    (tmp_path / "Makefile").write_text("test:\n\t@cc -o t t.c && ./t\n")
    (tmp_path / "t.c").write_text("#include <assert.h>\nint main(void) { assert(1 - 1 == 2); return 0; }\n")
    report = outcome_of(tmp_path)
    assert (report.failed, report.failures[0].location) == (1, "t.c:2")
    (tmp_path / "t.c").write_text("int main(void) { return 0; }\n")
    assert outcome_of(tmp_path).is_good


def test_in_the_sandbox_of_this_machine(project):
    try:
        report = outcome_of(project, without=False)
    except SandboxUnavailable:
        pytest.skip("no sandbox: this machine has none")
    assert (report.passed, report.failed) == (1, 1)
    assert report.failures[0].location == "tests/test_calc.py:9"
