from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.coding.tools.conftest import Desk
from tests.tables import table

from callboard.coding import search as search_module
from callboard.coding.tools.search import find_definition, find_files, find_in_file, grep, search
from callboard.execution import run_invoker


@pytest.fixture
def at(desk):
    return desk(search, grep, find_files, find_in_file, find_definition)


FILES = {
    "a.py": "import os\n\n\ndef run():\n    return os.getcwd()\n",
    "a-b.py": "run()\n",
    "a/deep/b.go": "package b\n\nfunc Run() {}\n",
    "a/x.py": "run(1)\r\nRUN\r\n",
    ".env": "run=1\n",
    "docs/read me.md": "how to run it\n",
    "latin.txt": b"caf\xe9 run\n",
    "utf16.txt": "run\n".encode("utf-16"),
    "bom.txt": b"\xef\xbb\xbfrun\n",
    "binary": b"run\n\0\1",
    ".hidden/x": "run\n",
    "node_modules/x/y.js": "run\n",
    "sub/vendor/x": "run\n",
    "sub/.venv/x": "run\n",
    "target/x": "run\n",
    "dist/x": "run\n",
    "build/x": "run\n",
    "pkg/__pycache__/x": "run\n",
    ".gitignore": "*.py\n# run\n",
}
EXPECTED = [
    ".env:1:run=1",
    ".gitignore:2:# run",
    "a/x.py:1:run(1)",
    "a-b.py:1:run()",
    "a.py:4:def run():",
    "bom.txt:1:run",
    "docs/read me.md:1:how to run it",
    "latin.txt:1:café run",
    "utf16.txt:1:run",
]


@pytest.fixture
def filled(at):
    for name, content in FILES.items():
        at.write(name, content)
    (at.root / "link.py").symlink_to("a.py")
    (at.root / "linked").symlink_to("a")
    os.mkfifo(at.root / "pipe")
    return at


def test_the_lines_of_all_files(filled):
    assert filled.call("search", action="grep", pattern="run").splitlines() == EXPECTED


@table(
    ("arguments", "found"),
    [
        ({"-t": "run", "action": "a"}, ["a/x.py:1:run(1)"]),
        ({"pattern": "run", "path": "a"}, ["a/x.py:1:run(1)"]),
        ({"pattern": "run", "directory": "./a/"}, ["a/x.py:1:run(1)"]),
        ({"pattern": "run", "directory": "linked"}, ["a/x.py:1:run(1)"]),
        ({"pattern": "run", "directory": "a.py"}, ["a.py:4:def run():"]),
        ({"pattern": "run", "directory": "{root}/a"}, ["a/x.py:1:run(1)"]),
        ({"pattern": "^run", "file_pattern": "*.py"}, ["a/x.py:1:run(1)", "a-b.py:1:run()"]),
        ({"pattern": "^r", "file_pattern": "**/*.{py,go}"}, ["a/x.py:1:run(1)", "a-b.py:1:run()"]),
        ({"pattern": "run", "file_pattern": "a/**"}, ["a/x.py:1:run(1)"]),
        ({"pattern": "RUN$"}, ["a/x.py:2:RUN"]),
        ({"pattern": "^run$", "case_insensitive": True, "directory": "a"}, ["a/x.py:2:RUN"]),
        ({"pattern": "run\\(\\d"}, ["a/x.py:1:run(1)"]),
        ({"pattern": "run(?=\\(1)"}, ["a/x.py:1:run(1)"]),
        ({"pattern": "(r)(u)n=1(?<!x)"}, [".env:1:run=1"]),
        (
            {"pattern": "run("},
            [
                "a/x.py:1:run(1)",
                "a-b.py:1:run()",
                "a.py:4:def run():",
                "(the pattern is no regular expression; it was searched for as it is)",
            ],
        ),
        ({"pattern": "nowhere"}, ["no line matches nowhere"]),
        ({"pattern": "-e"}, ["no line matches -e"]),
        ({"pattern": "run", "directory": ".hidden"}, [".hidden/x:1:run"]),
        ({"pattern": "run", "directory": "sub/vendor"}, ["sub/vendor/x:1:run"]),
        ({"pattern": "run", "max_results": 2}, [".env:1:run=1", ".gitignore:2:# run", "... (limited to 2 results)"]),
        ({"pattern": "run", "max_results": 9}, EXPECTED),
    ],
)
def test_grep(filled, arguments, found):
    given = {key: value.format(root=filled.root) if key == "directory" else value for key, value in arguments.items()}
    assert filled.call("search", **given).splitlines() == found


def test_in_one_file(filled):
    assert filled.call("find_in_file", path="a/x.py", pattern="run", case_insensitive=True) == (
        "a/x.py:1:run(1)\na/x.py:2:RUN"
    )
    assert filled.call("search", action="find_in_file", path="binary", pattern="run") == "no line matches run"


def test_a_file_whose_name_has_a_line_end_is_one_line(at):
    at.write("a\nb:1:fake", "x\n")
    assert at.call("grep", pattern="x") == "a\\nb:1:fake:1:x"


def test_a_name_that_is_no_unicode(at):
    (at.root / os.fsdecode(b"a\xff")).write_text("x\n")
    assert at.call("grep", pattern="x") == "a\\udcff:1:x"
    assert at.call("find_files", pattern="a*") == "a\\udcff"


def test_a_long_line_is_cut(at):
    at.write("min.js", "x" * 3_000_000)
    assert at.call("grep", pattern="x") == f"min.js:1:{'x' * 300}..."


@pytest.mark.parametrize("directory", ["..", "/etc", "out", "nowhere"])
@pytest.mark.parametrize("name", ["grep", "find_files", "find_definition"])
def test_nothing_outside_is_searched(at, tmp_path, directory, name):
    (tmp_path / "secret").write_text("secret\n")
    (at.root / "out").symlink_to(tmp_path)
    arguments = {"name": "secret"} if name == "find_definition" else {"pattern": "secret"}
    refused = at.refused(name, directory=directory, **arguments)
    assert "is outside of" in refused or "No such file" in refused


def test_an_expression_that_takes_forever(at, monkeypatch):
    monkeypatch.setattr(search_module, "SECONDS", 0.3)
    at.write("a", "b\n")
    at.write("evil", "a" * 100 + "\n")
    at.write("z", "aab\n")
    assert at.call("grep", pattern="^(a+)+b$").splitlines() == ["z:1:aab", "(evil took too long)"]


def test_a_search_that_takes_too_long_says_so(at, monkeypatch):
    monkeypatch.setattr("callboard.coding.tools.search.SECONDS", 0.2)
    at.write("evil", "a" * 100 + "\n")
    assert "(stopped after 0.2 s; name a directory or a file_pattern)" in at.call("grep", pattern="^(a+)+b$")


async def test_what_is_cancelled_leaves_no_process(at):
    at.write("evil", "a" * 100 + "\n")
    before = children_of_this_process()  # a parser may be there for good

    await at.workspace.connect()
    call = asyncio.ensure_future(
        run_invoker(at._ensemble.access_invoker("grep"), {"pattern": "^(a+)+b$"}, on_error="feedback")
    )
    while (children := children_of_this_process()) == before:  # noqa: ASYNC110  # nobody tells us
        await asyncio.sleep(0.01)  # until it runs
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert children
    assert children_of_this_process() == before


@pytest.mark.parametrize("call", [("grep", {"pattern": "run"}), ("find_definition", {"name": "run"})])
async def test_a_search_that_has_enough_leaves_no_process(at, call):
    """It has ended when the call returns, not at some time after it."""
    tool, arguments = call
    for number in range(300):
        at.write(f"a{number}.py", "def run(): pass\n" * 3)

    await at.workspace.connect()
    await run_invoker(at._ensemble.access_invoker(tool), arguments)
    assert searching() == []


def searching():
    """The children of this process that search."""
    return [
        each for each in children_of_this_process() if b"search_worker" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]


def children_of_this_process():
    path = f"/proc/self/task/{os.getpid()}/children"
    with open(path) as file:  # noqa: PTH123  # of the system
        return file.read().split()


def test_find_files(filled):
    assert filled.call("search", action="find_files", pattern="*.py").splitlines() == ["a/x.py", "a-b.py", "a.py"]
    assert filled.call("find_files", pattern="a/**/*.go") == "a/deep/b.go"
    assert (
        filled.call("find_files", pattern="*", directory="a", max_results=1)
        == "a/deep/b.go\n... (limited to 1 results)"
    )
    assert filled.call("find_files", pattern="nothing*", path="a") == "no file is named nothing*"


DEFINITIONS = {
    "a.py": "class Server:\n    def run(self):\n        pass\n\n\ndef run():\n    run()\n",
    "b.go": "package b\n\ntype Server struct{}\n\nfunc (s *Server) Run() {}\n",
    "c.ts": "export interface Server {}\nexport const run = () => 1\n",
    "d.tsx": "export function Run() { return <a/> }\n",
    "e.md": "run\n",
    "f.py": "from a import run\n",
}


@table(
    ("arguments", "found"),
    [
        ({"name": "run"}, ["a.py:2:    def run(self):", "a.py:6:def run():", "c.ts:2:export const run = () => 1"]),
        ({"name": "Server.run"}, ["a.py:2:    def run(self):"]),
        (
            {"name": "Server"},
            ["a.py:1:class Server:", "b.go:3:type Server struct{}", "c.ts:1:export interface Server {}"],
        ),
        ({"name": "Run", "language": "go"}, ["b.go:5:func (s *Server) Run() {}"]),
        ({"name": "Run", "language": "typescript"}, ["d.tsx:1:export function Run() { return <a/> }"]),
        ({"name": "a"}, ["no definition of a was found", "it is mentioned at:", "a.py:1:class Server:"]),
        ({"name": "nothing"}, ["no definition of nothing was found"]),
    ],
)
def test_definitions(at, arguments, found):
    for name, content in DEFINITIONS.items():
        at.write(name, content)
    assert at.call("search", action="find_definition", **arguments).splitlines()[: len(found)] == found


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text("ab.*^$ \\", min_size=1, max_size=5),
    st.dictionaries(st.sampled_from(["a", "b/c", "b-c", ".h/x", "b/.d", "z"]), st.text("ab. \n", max_size=12)),
)
def test_what_matches_is_what_python_says(tmp_path_factory, pattern, files):
    desk = Desk(tmp_path_factory.mktemp("same"), [grep])
    for name, content in files.items():
        desk.write(name, content)
    text = desk.call("grep", pattern=pattern)
    if "no regular" not in text:
        expected = [
            f"{name}:{number}:{line}"
            for name in sorted(files, key=lambda path: path.split("/"))
            if not name.startswith(".h/")
            for number, line in enumerate(files[name].removesuffix("\n").split("\n"), 1)
            if files[name] and re.search(pattern, line)
        ]
        assert text.splitlines() == (expected or [f"no line matches {pattern}"])
