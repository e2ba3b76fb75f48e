import asyncio

import pytest

from callboard.coding.agents.apply_code_blocks import MAX_BLOCKS, MAX_REPLY, CodeBlockApplier
from callboard.coding.workspace.workspace import Workspace
from callboard.tools import Policy

FILE = b"\xef\xbb\xbfimport os\r\n\r\n\r\ndef f():\r\n    # ... of the first\r\n    return 1\r\n\r\n\r\ndef g():\r\n    return '\xc3\xbc'"


def apply(directory, reply, files=("a.py",)):
    workspace = Workspace(directory, sandbox=object())
    applier = CodeBlockApplier(
        workspace,
        Policy([("*", "allow")]),
        lambda *_: "deny",
        files=files,
        new_files=[],
        guarded_files=[],
        emit=lambda _: None,
        save=lambda: asyncio.sleep(0),
    )

    async def run():
        await workspace.connect()
        try:
            await applier.apply(reply)
        finally:
            await workspace.disconnect()

    asyncio.run(run())
    return applier.failures


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def f():\n    # ... rest unchanged\n    return 2\n", "leaves something out at line 2"),
        ("def f():\n    return 2\n\ndef g():\n    ...\n", "leaves the body of g, at line 9 of the file, out"),
        ("from a import h\n\ndef f():\n    return h()\n", "imports a.py into itself"),
        ("def f(:\n    return 2\n", "syntax error at line 1"),
    ],
)
def test_code_that_is_refused_leaves_the_file_as_it_was(tmp_path, code, told):
    (tmp_path / "a.py").write_bytes(FILE)
    (failure,) = apply(tmp_path, f"a.py\n```python\n{code}```\n")
    assert told in failure
    assert (tmp_path / "a.py").read_bytes() == FILE


def test_code_keeps_line_ends_and_byte_order_mark(tmp_path):
    (tmp_path / "a.py").write_bytes(FILE)
    code = (
        "\ufeffimport re\r\n\r\ndef f():\r\n    # ... of the first\r\n    return 2\r\n\r\ndef h():\r\n    return 3\r\n"
    )
    assert apply(tmp_path, f"a.py\n```python\n{code}```\n") == []
    expected = FILE.replace(b"os\r\n", b"os\r\nimport re\r\n").replace(b"return 1", b"return 2")
    new = b"def h():\r\n    return 3\r\n\r\n\r\n"
    assert (tmp_path / "a.py").read_bytes() == expected.replace(b"def g", new + b"def g") + b"\r\n"


@pytest.mark.parametrize(
    "reply", ["a.py\n```python\n" + "x" * MAX_REPLY, "a.py\n```python\nx = 1\n```\n" * (MAX_BLOCKS + 1)]
)
def test_a_reply_that_is_too_long_is_refused(tmp_path, reply):
    (tmp_path / "a.py").write_bytes(FILE)
    (failure,) = apply(tmp_path, reply)
    assert "your answer is longer than" in failure
    assert (tmp_path / "a.py").read_bytes() == FILE


def test_code_without_a_path_or_language_is_for_the_file_that_has_its_names(tmp_path):
    (tmp_path / "a.go").write_text("package a\n\nfunc F() int {\n\treturn 1\n}\n")
    (tmp_path / "a_test.go").write_text("package a\n")
    reply = "Fixed code:\n```\nfunc F() int {\n\treturn 2\n}\n```\n"
    assert apply(tmp_path, reply, ("a_test.go", "a.go")) == []
    assert "return 2" in (tmp_path / "a.go").read_text()


def test_a_package_that_the_file_imports_is_not_imported_again_under_its_name(tmp_path):
    text = 'package a\n\nimport "example.com/errors"\n\nvar b = errors.New("b")\n'
    (tmp_path / "a.go").write_text(text)
    assert apply(tmp_path, 'a.go\n```go\nvar c = errors.New("c")\n```\n', ("a.go",)) == []
    assert (tmp_path / "a.go").read_text() == f'{text}var c = errors.New("c")\n'
