"""A path that a rule denies is neither read nor changed, by whatever name it is called."""

import asyncio
import os
import subprocess
import unicodedata

import pytest

from callboard import Agent
from callboard.coding.tools import code_edit, git, make_ensemble, navigate, search
from callboard.coding.tools.file import file
from callboard.coding.workspace.workspace import Workspace
from callboard.configuration import io_tools
from callboard.errors import SandboxUnavailable
from callboard.sandbox import find_sandbox
from callboard.storage.confined_directory import ConfinedDirectory, set_path_guard
from callboard.testing import Call, ScriptedModel
from callboard.tools import Ensemble, Invoker, Policy

DENY = ("*(.env)", "*(.github/**)")
SECRET = "TOKEN=hunter2"


@pytest.fixture
def root(tmp_path):
    """A tree with links to what is denied, as a cloned repository may have them."""
    root = tmp_path / "root"
    (root / ".github" / "workflows").mkdir(parents=True)
    (root / "docs").mkdir()
    (root / ".env").write_text(f"{SECRET}\n")
    (root / ".github" / "workflows" / "ci.yml").write_text(f"on: push  # {SECRET}\n")
    (root / "docs" / "ci").symlink_to("../.github")
    (root / "docs" / "up").symlink_to("..")
    (root / "docs" / "environment").symlink_to("../.env")
    (root / "docs" / "index.md").write_text(f"no {SECRET}\n")
    os.link(root / ".env", root / "docs" / "hard")
    return root


class Model:
    """Calls tools of a workspace under rules."""

    def __init__(self, root):
        self.root = root
        self.asked = []

    def results(self, *calls, rules=(), answer="deny", deny=DENY):
        async def approve(_, why):
            self.asked.append(why)
            return answer

        async def run():
            workspace = Workspace(self.root, sandbox=object())
            tools = make_ensemble(workspace, _EVERY, single=False)
            policy = Policy([("*", "allow"), *rules, *((each, "deny") for each in deny)], root=str(self.root))
            await tools.connect()
            try:
                model = ScriptedModel([*([Call(name, arguments)] for name, arguments in calls), "Done."])
                done = await Agent(model, ensembles=[tools], policy=policy, approve=approve).run("Go.")
            finally:
                await tools.disconnect()
            return [each for each in done.canisters if hasattr(each, "invocation_id")]

        return asyncio.run(run())

    def result(self, tool, /, rules=(), answer="deny", deny=DENY, **arguments):
        (result,) = self.results((tool, arguments), rules=rules, answer=answer, deny=deny)
        return result


_EVERY = [
    each.name
    for tool in (file, code_edit.code_edit, search.search, navigate.navigate, git.git)
    for each in tool.actions.values()
]


@pytest.fixture
def model(root):
    return Model(root)


SPELLINGS = [
    ".env",
    "./.env",
    "docs/../.env",
    "docs/ci/../.env",
    "docs/up/.env",
    "docs/environment",
    "docs/hard",
    "docs/up/docs/environment",
    ".github/workflows/ci.yml",
    "docs/ci/workflows/ci.yml",
    "docs/up/.github/workflows/ci.yml",
]


@pytest.mark.parametrize("path", SPELLINGS)
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("file", {"action": "read"}),
        ("file", {"action": "write", "content": "mine"}),
        ("file", {"action": "append", "content": "mine"}),
        ("file", {"action": "delete"}),
        ("file", {"action": "replace", "old": "TOKEN", "new": "mine"}),
        ("code_edit", {"action": "get_lines"}),
        ("code_edit", {"action": "edit_lines", "start_line": 1, "new_content": "mine"}),
        ("search", {"action": "find_in_file", "pattern": "TOKEN"}),
        ("search", {"action": "grep", "pattern": "TOKEN"}),
        ("navigate", {"action": "get_file_outline"}),
        ("navigate", {"action": "find_imports"}),
    ],
    ids=lambda each: each if isinstance(each, str) else each["action"],
)
def test_a_denied_path_is_denied_by_every_name_that_leads_to_it(model, root, tool, arguments, path):
    result = model.result(tool, path=path, **arguments)
    assert result.error is not None
    assert result.error.category == "permission"
    assert "hunter2" not in result.text
    assert (root / ".env").read_text() == f"{SECRET}\n"
    assert (root / ".github/workflows/ci.yml").read_text() == f"on: push  # {SECRET}\n"


def test_a_denied_path_is_denied_by_an_absolute_name(model, root):
    for path in (".env", "docs/up/.env", "docs/hard"):
        assert model.result("file", action="read", path=str(root / path)).error is not None


def test_nothing_new_is_made_through_a_link_to_a_denied_directory(model, root):
    for path in ("docs/ci/workflows/new.yml", "docs/ci/new/deep/x.yml", "docs/up/.github/x"):
        assert model.result("file", action="write", path=path, content="mine").error.category == "permission"
    patch = "*** Begin Patch\n*** Add File: docs/ci/workflows/new.yml\n+mine\n*** End Patch"
    assert model.result("code_edit", action="apply_patch", patch=patch).error.category == "permission"
    assert {path.name for path in (root / ".github").rglob("*")} == {"workflows", "ci.yml"}


def test_what_is_not_denied_is_reached_through_links_as_before(model, root):
    assert "no TOKEN" in model.result("file", action="read", path="docs/up/docs/index.md").text
    assert model.result("file", action="write", path="docs/up/docs/new/a.md", content="x").error is None
    assert (root / "docs/new/a.md").read_text() == "x"


def test_an_allowed_folder_does_not_lead_out_of_it_by_a_link(model):
    rules = [("file", "ask"), ("file(docs/**)", "allow")]
    assert model.result("file", rules=rules, deny=(), action="read", path="docs/index.md").error is None
    assert model.asked == []
    assert model.result("file", rules=rules, deny=(), action="read", path="docs/up/.env").error is not None
    assert model.result("file", rules=rules, deny=(), action="read", path="docs/hard").error is not None
    assert len(model.asked) == 2


@pytest.mark.parametrize("path", [".ENV", ".Env", "docs/up/.eNv", ".e\u200dnv", ".GITHUB/workflows/ci.yml"])
def test_a_name_that_some_file_systems_take_for_a_denied_one_is_asked_about(model, path):
    assert model.result("file", action="read", path=path).error.category == "permission"
    assert "may say deny" in model.asked[0]


def test_a_composed_accent_is_the_accent():
    policy = Policy([("*", "allow"), ("*(caf\u00e9/**)", "deny")])
    for form, answer in (("NFC", "deny"), ("NFD", "ask")):
        path = unicodedata.normalize(form, "caf\u00e9/x")
        assert policy.decide(Invoker.of(file), {"action": "read", "path": path})[0] == answer


def test_a_search_does_not_show_lines_of_denied_files(model, root):
    (root / "config").mkdir()
    (root / "config" / "secret.py").write_text(f"def {SECRET.lower().replace('=', '_')}(): pass\n")
    (root / "app.py").write_text("def token_mine(): pass  # TOKEN\n")
    deny = (*DENY, "*(config/**)")
    for directory in (".", "docs/up"):
        text = model.result("search", deny=deny, action="grep", pattern="TOKEN|token", directory=directory).text
        assert "token_mine" in text
        assert "hunter2" not in text.replace("no TOKEN=hunter2", "")
        assert "files that a rule keeps this call from are left out" in text
    text = model.result("search", deny=deny, action="find_definition", name="token_hunter2").text
    assert "secret.py" not in text
    text = model.result("search", deny=deny, action="find_files", pattern="*").text
    assert "app.py" in text
    assert "secret.py" not in text
    assert "app.py" in model.result("navigate", deny=deny, action="get_tree").text
    assert "secret.py" not in model.result("navigate", deny=deny, action="get_tree").text


def test_a_search_does_not_reveal_if_a_denied_file_matches(model):
    texts = [
        model.result("search", deny=("*(.env)", "*(**/hard)", "*(**/index.md)"), action="grep", pattern=each).text
        for each in ("hunter2", "hunter3")
    ]
    assert texts[0].replace("hunter2", "hunter3") == texts[1]


def test_what_a_rule_asks_about_is_not_found_by_a_search_that_nobody_was_asked_about(model, root):
    (root / "private").mkdir()
    (root / "private" / "a.txt").write_text("found me\n")
    rules = [("*(private/**)", "ask")]
    search = {"action": "grep", "pattern": "found"}
    assert "found me" not in model.result("search", rules=rules, answer="allow", **search).text
    assert model.asked == []
    shown = model.result("search", rules=rules, answer="allow", directory="private", **search)
    assert "found me" in shown.text
    assert len(model.asked) == 1


def test_git_neither_shows_nor_stages_nor_puts_back_denied_files(repo):
    (repo / "ci").mkdir()
    (repo / "ci" / "deploy.sh").write_text("old\n")
    model = Model(repo)
    deny = ("*(ci/**)",)

    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=repo, check=True, capture_output=True, text=True)

    git("add", "-A")
    git("commit", "-qm", "ci")
    (repo / "ci" / "deploy.sh").write_text("hunter2\n")
    (repo / "a.py").write_text("work\n")

    shown = model.result("git", deny=deny, action="diff").text
    assert "+work" in shown
    assert "hunter2" not in shown
    assert "1 file is left out, by the rules" in shown
    for named in (["ci/deploy.sh"], ["ci"], ["./ci/../ci/deploy.sh"]):
        assert model.result("git", deny=deny, action="diff", files=named).error.category == "permission"
        assert model.result("git", deny=deny, action="add", files=named).error.category == "permission"
    for place in ("ci/deploy.sh", "ci"):
        assert model.result("git", deny=deny, action="checkout", branch=place).error.category == "permission"
    assert model.result("git", deny=("*(ci/deploy.sh)",), action="checkout", branch="ci").error is not None
    assert (repo / "ci" / "deploy.sh").read_text() == "hunter2\n"
    assert "by the rules: ci/deploy.sh" in model.result("git", deny=deny, action="add", files=["."]).text
    assert model.result("git", deny=deny, action="commit", message="Work").error is None
    assert git("show", "--name-only", "--format=", "HEAD").stdout.split() == ["a.py"]


def test_allowing_an_action_of_git_allows_its_files(repo):
    (repo / "a.py").write_text("work\n")
    rules = [("git", "ask"), ("git(diff)", "allow")]
    model = Model(repo)
    assert "+work" in model.result("git", rules=rules, deny=(), action="diff", files=["a.py"]).text
    assert model.asked == []


@pytest.fixture
def sandbox():
    try:
        found = asyncio.run(find_sandbox(prefer="bubblewrap"))
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox: {error}")
    if found.name != "bubblewrap":
        pytest.skip("no sandbox: only bubblewrap can hide what lies in the workspace")
    return found


async def test_a_command_neither_reads_nor_changes_nor_makes_a_denied_path(sandbox, root):
    """Wherever there is bubblewrap."""
    (root / "docs" / "hard").unlink()
    (root / "app").mkdir()
    (root / "app" / "a.key").write_text("hunter2\n")

    async def allowed(*_):
        return "allow"

    deny = [(f"*({each})", "deny") for each in (".env", ".github/**", "new/**", "**/*.key")]

    workspace = Workspace(root, sandbox=sandbox)
    tools = make_ensemble(workspace, ["bash"], single=True)
    await tools.connect()
    try:
        command = (
            "grep -r '' . .env docs/environment app/a.key docs/ci/workflows; echo mine | tee .env app/a.key"
            " .github/workflows/ci.yml; mkdir -p new && echo mine > new/x; echo fine > app/b"
        )
        model = ScriptedModel([[Call("bash", {"command": command})], "Done."])
        # Such a command is asked about, and somebody says yes to it.
        policy = Policy([("*", "allow"), *deny])
        done = await Agent(model, ensembles=[tools], policy=policy, approve=allowed).run("Go.")
    finally:
        await tools.disconnect()
    shown = next(each for each in done.canisters if hasattr(each, "invocation_id")).text
    assert "index.md" in shown
    assert "hunter2" not in shown.replace(f"no {SECRET}", "")
    assert (root / ".env").read_text() == f"{SECRET}\n"
    assert (root / "app" / "a.key").read_text() == "hunter2\n"
    assert SECRET in (root / ".github" / "workflows" / "ci.yml").read_text()
    assert not (root / "new").exists()
    assert (root / "app" / "b").read_text() == "fine\n"


async def test_a_link_that_is_turned_between_the_decision_and_the_call_leads_nowhere(root):
    """What is judged at last is the path that the walk took."""
    tree = ConfinedDirectory(str(root))

    await tree.connect()
    set_path_guard(lambda path: not path.startswith((".env", ".github")))
    for path in ("docs/up/.env", "docs/hard", "docs/ci/workflows/ci.yml"):
        for act in (lambda path=path: tree.read(path, 100), lambda path=path: tree.write(path, b"x")):
            with pytest.raises(PermissionError, match="a rule keeps this call from"):
                act()
    with pytest.raises(PermissionError):
        tree.names("docs/ci", 10)
    assert tree.read("docs/index.md", 100)
    await tree.disconnect()


async def test_the_files_of_the_built_in_ensemble_have_the_same_rules(root):
    io = Ensemble(
        "io",
        [io_tools.read_file, io_tools.write_file, io_tools.list_directory],
        connection=ConfinedDirectory(str(root)),
    )
    await io.connect()
    policy = Policy([("*", "allow"), *((each, "deny") for each in DENY)])
    for path in ("docs/up/.env", "docs/hard", ".env"):
        assert policy.decide(io.access_invoker("read_file"), {"path": path})[0] == "deny"
    assert policy.decide(io.access_invoker("read_file"), {"path": "docs/index.md"})[0] == "allow"
    await io.disconnect()
