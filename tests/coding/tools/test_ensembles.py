from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from tests.tables import table

from callboard.coding.tools import make_ensemble, single_action
from callboard.coding.tools.action_tool import ActionTool
from callboard.coding.tools.file import file
from callboard.coding.workspace.workspace import Workspace
from callboard.configuration import disconnect_ensembles, load_configuration, prepare_ensembles
from callboard.core import InvocationEnded, ReplyEnded
from callboard.dialects import Parser
from callboard.errors import DescriptorError
from callboard.execution import run_invoker
from callboard.tools import InvokerRegistry, Policy

SEVEN = ["file", "code_edit", "search", "navigate", "git", "bash", "test"]
SINGLE = [
    "read_file", "write_file", "replace_in_file", "append_file", "delete_file",
    "get_lines", "edit_lines", "insert_lines", "delete_lines", "apply_patch",
    "grep", "find_files", "find_in_file", "find_definition",
    "list_directory", "outline", "imports", "tree",
    "git_status", "git_diff", "git_log", "git_add", "git_commit", "git_checkout", "git_branch",
    "bash", "run_tests",
]  # fmt: skip
ASKS = {
    "file", "code_edit", "git", "bash", "test",
    "write_file", "replace_in_file", "append_file", "delete_file", "edit_lines", "insert_lines", "delete_lines",
    "apply_patch", "git_add", "git_commit", "git_checkout", "git_branch", "run_tests",
}  # fmt: skip


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """The ensemble of a name, in the current directory; gives what `act` gives with it."""
    (tmp_path / "a.txt").write_text("one\n")
    monkeypatch.chdir(tmp_path)

    def prepare(name, act):
        async def scenario():
            configuration = load_configuration([name])
            ensembles = await prepare_ensembles(configuration)
            try:
                return await act(ensembles[0])
            finally:
                await disconnect_ensembles(ensembles)

        return asyncio.run(scenario())

    return prepare


@pytest.mark.parametrize(("name", "tools"), [("coding", SEVEN), ("coding_single", SINGLE)])
def test_the_ensembles_by_their_names(prepared, name, tools):
    async def act(made):
        assert list(made.invokers) == tools
        assert {each for each, invoker in made.invokers.items() if invoker.approval} == ASKS & {*tools}
        assert all(invoker.description for invoker in made.invokers.values())
        first = made.access_invoker(tools[0])
        return (await run_invoker(first, {"path": "a.txt"})).text

    assert prepared(name, act) == "one\n"


def test_without_an_answer_nothing_is_changed(prepared):
    async def act(made):
        return [Policy().decide(each, {})[0] for each in made.invokers.values()]

    assert prepared("coding", act) == ["ask", "ask", "allow", "allow", "ask", "ask", "ask"]


def test_options_are_checked(tmp_path):
    text = "[ensemble]\nname = 'coding'\nmodule = 'callboard.coding.workspace.workspace'\nsandbox = 'rocks'\n"
    (tmp_path / "coding.toml").write_text(text)
    with pytest.raises(DescriptorError, match="sandbox"):
        asyncio.run(prepare_ensembles(load_configuration([tmp_path])))
    (tmp_path / "coding.toml").write_text(text.replace("sandbox = 'rocks'", "rot = '.'"))
    with pytest.raises(DescriptorError, match="did you mean 'root'"):
        asyncio.run(prepare_ensembles(load_configuration([tmp_path])))


COMMANDS = {
    'search -t "x" path': ("search", {"pattern": "x", "directory": "path", "action": "grep"}),
    "search -t x": ("search", {"pattern": "x", "action": "grep"}),
    "file pkg/x.go": ("file", {"path": "pkg/x.go", "action": "read"}),
    "file write a.txt 'two words'": ("file", {"action": "write", "path": "a.txt", "content": "two words"}),
    "code_edit -f F -l 3:9 -r TEXT": (
        "code_edit",
        {"path": "F", "start_line": "3:9", "new_content": "TEXT", "action": "edit_lines"},
    ),
    "code_edit -f F -l 3 -a TEXT": ("code_edit", {"path": "F", "start_line": "3", "added": "TEXT", "action": "append"}),
    "code_edit -f F -a TEXT": ("code_edit", {"path": "F", "added": "TEXT", "action": "append"}),
    "code_edit -f F -l 3:9": ("code_edit", {"path": "F", "start_line": "3:9", "action": "get_lines"}),
    "file --action write --path a.py --content \"x = 1\n\n# two\ny = '2'\n\"": (
        "file",
        {"action": "write", "path": "a.py", "content": "x = 1\n\n# two\ny = '2'\n"},
    ),
    "code_edit -f F -a 'def f():\n    return \"a\\n\"\n'": (
        "code_edit",
        {"path": "F", "added": 'def f():\n    return "a\\n"\n', "action": "append"},
    ),
    "navigate src": ("navigate", {"directory": "src", "action": "list_directory"}),
    "navigate get_file_outline --path a.py": ("navigate", {"action": "get_file_outline", "path": "a.py"}),
    "git status": ("git", {"action": "status"}),
    "git diff --base main": ("git", {"action": "diff", "base": "main"}),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_as_seed_003_writes_them(tmp_path, command):
    made = make_ensemble(Workspace(tmp_path, sandbox=object()), SINGLE, single=False)
    registry = InvokerRegistry([made])
    parser = Parser(registry.declarations, "markdown_bash")
    events = [*parser.feed(f"```bash\n{command}\n```\n"), *parser.finish("stop")]
    (call,) = [event for event in events if isinstance(event, InvocationEnded)]
    name, meant = COMMANDS[command]
    understood = registry[call.name].coerce(call.arguments)
    assert (call.name, {key: understood.get(key) for key in meant}) == (name, meant)
    assert not any(isinstance(event, ReplyEnded) for event in events)


@table(
    ("name", "arguments", "action"),
    [
        ("file", {"action": "read", "path": "x"}, "read_file"),
        ("file", {"path": "x"}, "read_file"),
        ("search", {"-t": "x"}, "grep"),
        ("code_edit", {"-f": "x", "-a": "y"}, "append_file"),
        ("code_edit", {"-f": "x", "-l": "1", "-r": "y"}, "edit_lines"),
        ("navigate", {"action": "get_tree"}, "tree"),
        ("git", {"action": "commit", "message": "x"}, "git_commit"),
        ("file", {"action": "delete"}, "delete_file"),
        ("file", {"action": "zzz", "path": "x"}, "file"),
        ("bash", {"command": "ls"}, "bash"),
        ("test", {}, "run_tests"),
        ("read_file", {"path": "x"}, "read_file"),
        ("other", {}, "other"),
    ],
)
def test_the_action_that_a_call_means(name, arguments, action):
    assert single_action(name, arguments) == action


def test_the_tools_of_a_phase(tmp_path):
    workspace = Workspace(tmp_path, sandbox=object())
    many = make_ensemble(workspace, ["read_file", "grep", "run_tests", "nothing"], single=False)
    assert list(many.invokers) == ["file", "search", "test"]
    assert many.invokers["file"].arguments_schema["properties"].keys() == {"action", "path"}
    assert not many.invokers["file"].approval
    single = make_ensemble(workspace, ["run_tests", "read_file", "bash"], single=True)
    assert {*single.invokers} == {"run_tests", "read_file", "bash"}
    assert many.connection is single.connection is workspace


def test_every_single_tool_is_an_action_of_the_seven(prepared):
    async def act(made):
        return {
            each.name: single_action(each.name, {"action": action})
            for each in made.invokers.values()
            for action in each.arguments_schema["properties"].get("action", {}).get("enum", [""])
        }

    assert prepared("coding", act).keys() == {*SEVEN}
    assert isinstance(file, ActionTool)


def test_what_is_imported_without_a_call():
    """The descriptors need no tools; tree-sitter comes with the first outline."""
    code = (
        "import sys; from callboard.configuration import load_configuration; load_configuration(['coding']);"
        "assert 'callboard.coding.tools.file' not in sys.modules;"
        "import callboard.coding.tools.file, callboard.coding.tools.navigate, callboard.coding.tools.search;"
        "assert not {'tree_sitter', 'aiohttp', 'rich'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
