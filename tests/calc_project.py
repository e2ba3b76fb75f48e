"""A small project with a mistake in it, and calls of the chat's tools that look at it and mend it."""

import pytest

from callboard.testing import Call

CODE = "def add(a, b):\n    return a - b\n"
EDIT = Call("file", {"action": "replace", "path": "calc.py", "old": "a - b", "new": "a + b"})
READ = Call("file", {"action": "read", "path": "calc.py"})


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "calc.py").write_text(CODE)
    return folder
