import asyncio
import hashlib
import json
import zipfile

import pytest

from callboard.errors import ModelFileError
from callboard.evaluation import load_bfcl
from callboard.evaluation.bfcl import CATEGORIES
from callboard.evaluation.suites import pull_bfcl


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A wheel that pip finds, with one task a category, and code that must not be unpacked."""
    path = tmp_path / "index/bfcl_eval-2026.3.23-py3-none-any.whl"
    path.parent.mkdir()
    about = "bfcl_eval-2026.3.23.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: bfcl-eval\nVersion: 2026.3.23\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
        archive.writestr("bfcl_eval/__init__.py", "")
        for category in CATEGORIES:
            function = {"name": "f", "description": "", "parameters": {"type": "dict", "properties": {}}}
            messages = [[{"role": "user", "content": "?"}]]
            question = {"id": f"{category}_0", "question": messages, "function": [function]}
            answer = {"id": f"{category}_0", "ground_truth": [{"f": {}}]}
            archive.writestr(f"bfcl_eval/data/BFCL_v4_{category}.json", json.dumps(question))
            archive.writestr(f"bfcl_eval/data/possible_answer/BFCL_v4_{category}.json", json.dumps(answer))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    return path


def test_the_tasks_are_unpacked_once_and_nothing_else(wheel, tmp_path):
    folder = tmp_path / "data/bfcl"
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert asyncio.run(pull_bfcl(folder, sha256=right)) == folder
    assert [task.category for task in load_bfcl(folder)] == [*CATEGORIES]
    assert [*folder.parent.iterdir()] == [folder]
    assert [*folder.rglob("*.py")] == []
    assert asyncio.run(pull_bfcl(folder, python="nobody-asks-pip-again")) == folder


@pytest.mark.usefixtures("wheel")
def test_another_wheel_is_refused_and_leaves_nothing(tmp_path):
    folder = tmp_path / "data/bfcl"
    with pytest.raises(ModelFileError, match=r"bfcl_eval-2026\.3\.23.*has the hash"):
        asyncio.run(pull_bfcl(folder))
    assert [*folder.parent.iterdir()] == []
