import asyncio
import os
import sys
from pathlib import Path
from typing import get_args

import pytest

from callboard.coding.git.repository import find_repository
from callboard.coding.git.tree_state import compute_digest
from callboard.coding.test_runners import RUNNERS, Kind
from callboard.coding.tools.commands import run_tests
from callboard.coding.tools.commands import test as single
from callboard.coding.workspace.workspace import Workspace
from callboard.execution import run_invoker
from callboard.sandbox import Confinement, find_sandbox
from callboard.tools import Ensemble


@pytest.fixture
def workspace(repo):
    return made(repo)


def made(root):
    environment = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    confinement = Confinement(workspace=root, environment=environment)
    return Workspace(root, sandbox=asyncio.run(find_sandbox(unconfined=True)), confinement=confinement)


def call(workspace, name="run_tests", **arguments):
    async def running():
        ensemble = Ensemble("coding", [run_tests, single], {}, workspace)
        await ensemble.connect()
        try:
            return await run_invoker(ensemble.access_invoker(name), arguments, on_error="feedback")
        finally:
            await ensemble.disconnect()

    return asyncio.run(running())


def test_what_a_model_is_told_and_what_is_kept(workspace, repo):
    (repo / "test_it.py").write_text("def test_a():\n    assert 1 + 1 == 3\n\ndef test_b():\n    pass\n")
    told = call(workspace).text
    assert told.startswith("pytest: 1 failed, 1 passed\n- test_it.py::test_a (test_it.py:2)\n    assert (1 + 1) == 3")
    (report,) = workspace.reports
    assert not report.is_good
    assert report.digest == asyncio.run(compute_digest(asyncio.run(find_repository(repo))))
    (repo / "test_it.py").write_text("def test_a():\n    assert 1 + 1 == 2\n")
    assert call(workspace, "test", type="python", verbose=True).text == "pytest: 1 passed"
    good = workspace.reports[-1]
    assert good.is_good
    # An edit afterwards is on another tree.
    (repo / "a.py").write_text("edited\n")
    assert asyncio.run(compute_digest(asyncio.run(find_repository(repo)))) != good.digest
    assert [each.digest != "" for each in workspace.reports] == [True, True]


@pytest.mark.usefixtures("home")
def test_without_a_repository(tmp_path):
    root = tmp_path / "plain"
    root.mkdir()
    (root / "test_it.py").write_text("def test_a(): pass\n")
    workspace = made(root)
    assert call(workspace).text == "pytest: 1 passed"
    assert workspace.reports[0].digest == ""


def test_each_kind_of_runner_can_be_asked_for():
    kinds = [*get_args(Kind)]
    assert run_tests.schema["properties"]["type"]["enum"] == ["", *kinds]
    assert {each.kind for each in RUNNERS} == {*kinds}


def test_what_cannot_be_asked(workspace):
    assert "no file in the root says how it is tested" in call(workspace).error.message
    assert call(workspace, type="maven").error.category == "validation"
    assert "is no name" in call(workspace, type="make", package="-C/").error.message
