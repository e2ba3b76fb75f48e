"""Repositories that would have git run something, or write somewhere: none of them does.

Each leaves a trace where it succeeds. They are worked on as jobs, chats and snapshots do it, and some by the command
that a user types. With `NEWER_GIT=/path/to/git` in the environment, all of it is tried with that git as well.
"""

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from tests.coding.conftest import NAME

from callboard.coding.git import process
from callboard.coding.git.open_tree import open_tree, undo_tree
from callboard.coding.git.process import GitFailed, git_path, run_git
from callboard.coding.git.repository import find_repository
from callboard.coding.git.snapshots import open_snapshots
from callboard.coding.git.tree_state import compute_digest
from callboard.errors import CallerError

GITS = {"git": "git"} | ({"newer": os.environ["NEWER_GIT"]} if os.environ.get("NEWER_GIT") else {})
HOOKS = (
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg"),
    *("commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-auto-gc"),
    *("post-rewrite", "fsmonitor-watchman", "post-index-change", "reference-transaction", "push-to-checkout"),
)


@pytest.fixture(scope="session")
def scripts(tmp_path_factory):
    """Each git as a script, by its name. A link would not do: git finds its own programs by where it is."""
    folder = tmp_path_factory.mktemp("chosen")
    for name, program in GITS.items():
        (folder / name).mkdir()
        (folder / name / "git").write_text(f'#!/bin/sh\nexec "{shutil.which(program)}" "$@"\n')
        (folder / name / "git").chmod(0o755)
    return folder


@pytest.fixture(params=GITS)
def chosen(request, scripts, monkeypatch):
    """The git that is used is one of these, and Landlock holds nothing back: the settings alone have to."""
    monkeypatch.setenv("PATH", f"{scripts / request.param}:{os.environ['PATH']}")
    assert process._own_programs(git_path()) == ()


@pytest.fixture
def trap(tmp_path):
    """A program that leaves a trace, and whether it did."""
    script = tmp_path / "trap"
    script.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\ncat 2>/dev/null\n")
    script.chmod(0o755)
    (tmp_path / "hooks").mkdir()
    for name in HOOKS:
        (tmp_path / "hooks" / name).symlink_to(script)

    def sprung():
        return (tmp_path / "ran").exists()

    sprung.path = script
    sprung.hooks = tmp_path / "hooks"
    return sprung


def works(repo, folder):
    """All that jobs, chats and snapshots ask of git; what git refuses it may refuse."""

    async def job():
        with suppress(CallerError):
            tree = await open_tree(repo, folder, "callboard/x")
            (tree.root / "a.py").write_text("work\n")
            (tree.root / "new.py").write_text("new\n")
            with suppress(CallerError):
                await tree.commit("work")
            await tree.changes()
            with suppress(CallerError):
                await tree.push()
            await tree.close(keep=False)
            await undo_tree(tree.record, folder)

    async def chat():
        with suppress(CallerError):
            repository = await find_repository(repo)
            snapshots = await open_snapshots(repo, folder)
            before = await snapshots.take("before")
            (repo / "a.py").write_text("work\n")
            (repo / "new.py").write_text("new\n")
            await repository.status(every=True)
            await repository.diff()
            await compute_digest(repository)
            await repository.restore(["src/b.py"])
            await repository.stage()
            with suppress(GitFailed):
                await repository.commit("work")
            await repository.create_branch("other")
            await repository.switch("other")
            await repository.log()
            with suppress(GitFailed):
                await repository.push("other")
            now = await snapshots.take("after")
            differences = await snapshots.diff_files(now, before)
            await snapshots.restore({path: then for path, (_, then) in differences.items()}, now)

    (folder / "tree-of-job").mkdir(parents=True, exist_ok=True)
    asyncio.run(job())
    asyncio.run(chat())


def configure(repo, text, trap):
    with (repo / ".git" / "config").open("a") as config:
        config.write(text.format(trap=trap.path, hooks=trap.hooks))


# What a repository's own configuration says, and what its attributes are for it to be asked.
CONFIGURATIONS = {
    "hooks": "[core]\n\thooksPath = {hooks}\n",
    "monitor": "[core]\n\tfsmonitor = {trap}\n\tfsmonitorHookVersion = 2\n",
    "pager": "[core]\n\tpager = {trap}\n[pager]\n\tdiff = {trap}\n\tlog = {trap}\n\tstatus = {trap}\n\tshow = true\n",
    "editor": "[core]\n\teditor = {trap}\n[sequence]\n\teditor = {trap}\n[commit]\n\tverbose = true\n",
    "signer": '[gpg]\n\tprogram = {trap}\n\tformat = ssh\n[gpg "ssh"]\n\tprogram = {trap}\n\tdefaultKeyCommand = {trap}\n'
    "[commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true\n[push]\n\tgpgSign = true\n[log]\n\tshowSignature = true\n",
    "external diff": "[diff]\n\texternal = {trap}\n",
    "diff driver": '[diff "x"]\n\tcommand = {trap}\n[diff "y"]\n\ttextconv = {trap}\n\tcachetextconv = true\n',
    "merge driver": '[merge "x"]\n\tdriver = {trap}\n[merge]\n\ttool = x\n[mergetool "x"]\n\tcmd = {trap}\n',
    "clean": '[filter "x"]\n\tclean = {trap}\n\trequired = true\n',
    "smudge": '[filter "x"]\n\tsmudge = {trap}\n\trequired = true\n',
    "process": '[filter "x"]\n\tprocess = {trap}\n\trequired = true\n',
    "a filter of the name of git-lfs": '[filter "lfs"]\n\tclean = {trap}\n\tsmudge = {trap}\n\tprocess = {trap}\n',
    "a filter half of git-lfs": '[filter "x"]\n\tclean = git-lfs clean -- %f\n\tsmudge = {trap}\n\tprocess = {trap}\n',
    "odd names of filters": '[filter "a=b"]\n\tclean = {trap}\n[filter "X.Y"]\n\tsmudge = {trap}\n[filter ""]\n\tclean = {trap}\n'
    '[filter "q\\"\\\\"]\n\tclean = {trap}\n',
    "credential helper": "[credential]\n\thelper = {trap}\n\thelper = !{trap}\n",
    "askpass": "[core]\n\taskPass = {trap}\n",
    "ssh": '[core]\n\tsshCommand = {trap}\n[remote "origin"]\n\turl = ssh://localhost/x\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n',
    "git proxy": '[core]\n\tgitProxy = {trap}\n[remote "origin"]\n\turl = git://localhost/x\n',
    "receive pack": '[remote "origin"]\n\turl = {trap}\n\treceivepack = {trap}\n\tuploadpack = {trap}\n',
    "ext": '[protocol "ext"]\n\tallow = always\n[remote "origin"]\n\turl = ext::{trap}\n',
    "rewritten to ext": '[protocol "ext"]\n\tallow = always\n[url "ext::{trap} "]\n\tinsteadOf = far:\n'
    '[remote "origin"]\n\turl = far:x\n',
    "remote helper": '[protocol]\n\tallow = always\n[remote "origin"]\n\turl = trap::x\n\tvcs = trap\n',
    "option for a remote": '[remote "--receive-pack={trap}"]\n\turl = {trap}\n[remote "origin"]\n\turl = --upload-pack={trap}\n',
    "http": '[http]\n\tproxy = ext::{trap}\n\tsslCertPasswordProtected = true\n[remote "origin"]\n\turl = http://localhost:9/\n',
    "alias": "[alias]\n\tstatus = !{trap}\n\tadd = !{trap}\n\tworktree = !{trap}\n\tconfig = !{trap}\n",
    "trailer": '[trailer "x"]\n\tcommand = {trap}\n\tcmd = {trap}\n\tifmissing = add\n',
    "submodule": '[submodule]\n\trecurse = true\n[submodule "inner"]\n\tupdate = !{trap}\n\turl = ext::{trap}\n\tactive = true\n',
    "alternates": "[core]\n\talternateRefsCommand = {trap}\n\talternateRefsPrefixes = refs\n",
    "browser and man": '[man]\n\tviewer = x\n[man "x"]\n\tcmd = {trap}\n[browser "x"]\n\tcmd = {trap}\n[help]\n\tbrowser = x\n',
    "interactive": "[interactive]\n\tdiffFilter = {trap}\n[add.interactive]\n\tuseBuiltin = false\n",
    "pack objects": "[uploadpack]\n\tpackObjectsHook = {trap}\n[uploadarchive]\n\tallowUnreachable = true\n",
    "upkeep": "[gc]\n\tauto = 1\n\trecentObjectsHook = {trap}\n[maintenance]\n\tauto = true\n\tautoDetach = false\n",
    "bundle": "[fetch]\n\tbundleURI = ext::{trap}\n[transfer]\n\tbundleURI = true\n[bundle]\n\tversion = 1\n\tmode = all\n"
    '[bundle "x"]\n\turi = ext::{trap}\n',
    "promisor": '[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = evil\n[remote "evil"]\n\tpromisor = true\n'
    '\turl = ext::{trap}\n\tuploadpack = {trap}\n[protocol]\n\tallow = always\n[protocol "ext"]\n\tallow = always\n',
    "git-lfs": '[lfs "customtransfer.x"]\n\tpath = {trap}\n[lfs]\n\tstandalonetransferagent = x\n\turl = ext::{trap}\n'
    '[lfs "extension.x"]\n\tclean = {trap}\n\tsmudge = {trap}\n\tpriority = 0\n',
    "instaweb and web": "[instaweb]\n\thttpd = {trap}\n[web]\n\tbrowser = {trap}\n[sendemail]\n\tsendmailcmd = {trap}\n",
    "hooks by name": "".join([f'[hook "x"]\n\tevent = {name}\n\tcommand = {{trap}}\n' for name in HOOKS]),
    "hooks that are said to be on": '[hook "x"]\n\tevent = post-commit\n\tcommand = {trap}\n\tenabled = true\n'
    '[hook "y.z"]\n\tcommand = {trap}\n\tevent = post-checkout\n\tevent = reference-transaction\n\tparallel = true\n',
}
OPEN = "".join([f'[protocol "{name}"]\n\tallow = always\n' for name in ("ssh", "file", "git", "ext", "http")])
ATTRIBUTES = "* filter=x diff=x merge=x\n*.md diff=y\nsrc/** filter=lfs\n*.txt filter=a=b\n"


# Of these each says what the others say too, so each has a repository of its own; the rest is tried at once.
ALONE = ("clean", "smudge", "process", "a filter of the name of git-lfs", "a filter half of git-lfs")
TOGETHER = tuple([kind for kind, text in CONFIGURATIONS.items() if kind not in ALONE and "[remote" not in text])
REMOTES = tuple([kind for kind, text in CONFIGURATIONS.items() if "[remote" in text])


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("kinds", [TOGETHER, *[(kind,) for kind in ALONE]], ids=["all", *ALONE])
def test_nothing_that_a_repository_configures_runs(repo, job, git, trap, kinds):
    (repo / ".gitattributes").write_text(ATTRIBUTES)
    (repo / "b.md").write_text("x\n")
    (repo / "c.txt").write_text("x\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "attributes")
    for kind in kinds:
        configure(repo, CONFIGURATIONS[kind], trap)
    works(repo, job)
    assert not trap()


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("kind", REMOTES)
def test_nothing_that_a_remote_names_runs(repo, trap, kind):
    """Where the user has a branch pushed, by whatever name the model gives."""
    configure(repo, CONFIGURATIONS[kind] + OPEN, trap)
    repository = asyncio.run(find_repository(repo))
    for name in ("origin", "evil", f"--receive-pack={trap.path}"):
        with pytest.raises(GitFailed):
            asyncio.run(repository.push("main", name))
    assert not trap()


# Where the configuration stands: what is in it is a filter and what git does when it checks out.
EVIL = '[core]\n\tfsmonitor = {trap}\n\thooksPath = {hooks}\n[filter "x"]\n\tclean = {trap}\n\tsmudge = {trap}\n\tprocess = {trap}\n'
PLACES = {
    "include": "[include]\n\tpath = evil\n",
    "the branch of the job": '[includeIf "onbranch:callboard/**"]\n\tpath = evil\n',
    "a working tree": '[includeIf "gitdir:**/worktrees/**"]\n\tpath = evil\n',
    "a working tree, in any case": '[includeIf "gitdir/i:**/WORKTREES/**"]\n\tpath = evil\n',
    "a remote": '[remote "x"]\n\turl = https://example.org/x\n[includeIf "hasconfig:remote.*.url:https://**"]\n\tpath = evil\n',
    "of the working tree": "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tworktreeConfig = true\n",
}


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("kind", PLACES)
def test_nothing_that_a_repository_includes_runs(repo, job, git, trap, kind):
    """Also what is included only in the working tree, or on the branch, that is yet to be made."""
    (repo / ".gitattributes").write_text("* filter=x\n")
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "attributes")
    configure(repo, PLACES[kind], trap)
    for name in ("evil", "config.worktree"):
        (repo / ".git" / name).write_text(EVIL.format(trap=trap.path, hooks=trap.hooks))
    works(repo, job)
    assert not trap()


@pytest.fixture(scope="session")
def partial_clone(tmp_path_factory, twice):
    """The one that each test has a copy of."""
    folder = tmp_path_factory.mktemp("partial")
    (folder / "config").write_text(NAME)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_GLOBAL": str(folder / "config")}

    def git(where, *arguments):
        subprocess.run(["git", *arguments], cwd=where, env=environment, check=True, capture_output=True)

    whole = shutil.copytree(twice, folder / "whole")
    git(whole, "config", "uploadpack.allowFilter", "true")
    git(whole, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(whole, "branch", "old", "HEAD~1")
    git(folder, "clone", "-q", "--filter=blob:none", whole.as_uri(), "partial")
    git(folder / "partial", "branch", "-q", "old", "origin/old")
    return folder / "partial"


@pytest.fixture
def partial(tmp_path, git, partial_clone):
    """A partial clone that lacks the files of the branch `old`."""
    copied = shutil.copytree(partial_clone, tmp_path / "partial")
    git(copied, "update-index", "-q", "--refresh")
    return copied


FETCHING = {
    "ssh": '[core]\n\tsshCommand = {trap}\n[remote "origin"]\n\turl = ssh://localhost/x\n',
    "upload pack": '[remote "origin"]\n\tuploadpack = {trap}\n',
    "git proxy": '[core]\n\tgitProxy = {trap}\n[remote "origin"]\n\turl = git://localhost/x\n',
    "ext": '[remote "origin"]\n\turl = ext::{trap}\n',
    "credential helper": '[credential]\n\thelper = {trap}\n[remote "origin"]\n\turl = http://localhost:9/x\n',
    "another promisor": '[remote "evil"]\n\tpromisor = true\n\turl = ext::{trap}\n\tuploadpack = {trap}\n',
}


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("kind", FETCHING)
def test_nothing_that_a_partial_clone_configures_runs(partial, job, trap, kind):
    """What is missing is not fetched; where the user has asked for that, then by the user's own settings."""
    configure(partial, FETCHING[kind] + OPEN, trap)
    for number, fetch in enumerate([False, True]):
        folder = job / str(number)
        folder.mkdir()
        with pytest.raises(CallerError):
            asyncio.run(open_tree(partial, folder, "callboard/x", "old", fetch=fetch))
        assert not trap()
        assert not (folder / "tree").exists()
    works(partial, job.parent / "2")
    assert not trap()


@pytest.mark.usefixtures("chosen")
def test_what_is_missing_is_fetched_only_if_the_user_says_so(partial, job, git, home):
    with pytest.raises(CallerError, match=r"a partial clone, and not all of .* is here") as refused:
        asyncio.run(open_tree(partial, job, "callboard/x", "old"))
    assert "git.fetch = true" in str(refused.value)
    assert git(partial, "branch", "--list", "callboard/*") == ""
    with (home / ".gitconfig").open("a") as config:
        config.write('[protocol "file"]\n\tallow = always\n')
    second = job.parent / "2"
    second.mkdir()
    tree = asyncio.run(open_tree(partial, second, "callboard/x", "old", fetch=True))
    assert (tree.root / "a.py").read_text() == "one\n"
    asyncio.run(tree.close(keep=False))


def test_the_hint_of_a_partial_clone_works(partial, job, git):
    with pytest.raises(CallerError) as refused:
        asyncio.run(open_tree(partial, job, "callboard/x", "old"))
    (command,) = re.findall(r"git -C .* > /dev/null", str(refused.value))
    subprocess.run(["sh", "-c", command], check=True)
    third = job.parent / "3"
    third.mkdir()
    assert (asyncio.run(open_tree(partial, third, "callboard/x", "old")).root / "a.py").read_text() == "one\n"
    assert git(partial, "status", "--short") == ""


# Deliveries


@pytest.fixture
def embedded(tmp_path, git, repo, trap):
    """A clone of a repository that holds another one as plain files."""
    bare = repo / "examples" / "app"
    git(tmp_path, "clone", "-q", "--bare", str(repo), str(bare))
    shutil.rmtree(bare / "hooks")
    for folder in ("refs/heads", "refs/tags", "objects/info", "objects/pack"):
        (bare / folder).mkdir(parents=True, exist_ok=True)
        (bare / folder / ".keep").touch()
    (bare / "config").write_text(
        f"[core]\n\trepositoryformatversion = 0\n\tworktree = .\n\tfsmonitor = {trap.path}\n\thooksPath = {trap.hooks}\n"
    )
    git(repo, "add", "-f", ".")
    git(repo, "commit", "-qm", "example")
    git(tmp_path, "clone", "-q", str(repo), "clone")
    return tmp_path / "clone" / "examples" / "app"


TRIAGE = ("triage", "--description", "add is wrong", "--no-sandbox")


@pytest.mark.usefixtures("chosen")
def test_an_embedded_bare_repository_is_refused(embedded, command, trap, job):
    done = command(*TRIAGE, cwd=embedded, replies=[])
    assert "a bare repository, or the inside of one" in done.err
    assert done.code
    works(embedded, job)
    assert not trap()


@pytest.mark.usefixtures("chosen")
def test_a_repository_whose_place_is_no_git_folder_is_refused(embedded, monkeypatch):
    """Also by a git that is too old to be told."""
    without = tuple([each for each in process._SETTINGS if each[0] != "safe.bareRepository"])
    monkeypatch.setattr(process, "_SETTINGS", without)
    with pytest.raises(CallerError, match=r"not that of a \.git in a folder above"):
        asyncio.run(find_repository(embedded))


@pytest.mark.usefixtures("chosen")
def test_a_repository_of_another_user_is_refused(repo, command, trap, git, job):
    """As git refuses it; the user may say otherwise, and even then nothing runs."""
    if os.getuid():
        pytest.skip("root: only root gives files away")
    configure(repo, EVIL, trap)
    for path in [repo, *repo.rglob("*")]:
        os.lchown(path, 4242, 4242)
    done = command(*TRIAGE, cwd=repo, replies=[])
    assert "dubious ownership" in done.err
    assert f"git config --global --add safe.directory {repo}" in done.err.replace("\n", " ")
    assert not trap()
    git(repo.parent, "config", "--global", "--add", "safe.directory", str(repo))
    works(repo, job)
    assert not trap()


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("kind", ["the branch of the job", "a working tree", "upload pack", "ssh", "git proxy"])
def test_a_command_in_a_hostile_repository_runs_nothing_of_it(request, command, git, trap, kind):
    fetching = kind in FETCHING
    root = request.getfixturevalue("partial" if fetching else "repo")
    if not fetching:
        (root / ".gitattributes").write_text("* filter=x\n")
        git(root, "add", ".")
        git(root, "commit", "-qm", "attributes")
    (root / ".git" / "evil").write_text(EVIL.format(trap=trap.path, hooks=trap.hooks))
    configure(root, FETCHING[kind] + OPEN if fetching else PLACES[kind], trap)
    command(*TRIAGE, *(["--at", "old"] if fetching else []), cwd=root, replies=[])
    assert not trap()


@pytest.mark.usefixtures("chosen")
def test_a_working_tree_that_is_elsewhere_is_refused(repo, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    with (repo / ".git" / "config").open("a") as config:
        config.write(f"[core]\n\tworktree = {victim}\n")
    with pytest.raises(CallerError):
        asyncio.run(find_repository(repo))
    with (repo / ".git" / "config").open("a") as config:
        config.write(f"[core]\n\tworktree = {tmp_path}\n")
    with pytest.raises(CallerError, match=r"core\.worktree may lead elsewhere"):
        asyncio.run(find_repository(repo))


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize(
    "name",
    ["refs", "logs", "objects", "info", "worktrees", "packed-refs", "index", "logs/HEAD", "refs/heads/callboard"],
)
def test_a_part_of_a_repository_that_leads_out_of_it_is_refused(repo, tmp_path, name):
    part = repo / ".git" / name
    if part.exists():
        part.rename(tmp_path / "victim")
    part.symlink_to(tmp_path / "victim")
    with pytest.raises(CallerError, match="a link that leads out of it"):
        asyncio.run(find_repository(repo))


@pytest.mark.usefixtures("chosen")
def test_a_git_file_that_leads_to_a_hostile_repository(repo, job, trap):
    """As an unpacked archive may have it."""
    configure(repo, EVIL, trap)
    (repo / ".git").rename(repo / "data")
    (repo / ".git").write_text("gitdir: data\n")
    works(repo, job)
    (repo / ".git").unlink()
    (repo / ".git").symlink_to("data")
    works(repo, job.parent / "2")
    assert not trap()


@pytest.mark.usefixtures("chosen")
def test_what_is_in_the_environment_does_not_reach_git(repo, job, trap, monkeypatch, tmp_path):
    evil = tmp_path / "evil"
    evil.write_text(EVIL.format(trap=trap.path, hooks=trap.hooks))
    for name in (
        *("EXTERNAL_DIFF", "SSH", "SSH_COMMAND", "ASKPASS", "EDITOR", "SEQUENCE_EDITOR", "PAGER", "PROXY_COMMAND"),
        *("TRACE", "TRACE2", "TRACE2_EVENT", "TRACE_PACKET"),
    ):
        monkeypatch.setenv(f"GIT_{name}", str(tmp_path / "ran" if name.startswith("TRACE") else trap.path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(evil))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(evil))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.fsmonitor")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(trap.path))
    monkeypatch.setenv("GIT_TEMPLATE_DIR", str(trap.hooks.parent))
    monkeypatch.setenv("GIT_EXEC_PATH", str(trap.hooks))
    works(repo, job)
    assert not trap()


@pytest.mark.usefixtures("chosen")
def test_no_trace_is_written_where_a_repository_says(repo, job, tmp_path):
    traces = {f"{kind}Target": tmp_path / kind for kind in ("event", "normal", "perf")}
    with (repo / ".git" / "config").open("a") as config:
        config.writelines(["[trace2]\n", *(f"\t{key} = {place}\n" for key, place in traces.items())])
    works(repo, job)
    assert not any(place.exists() for place in traces.values())


ODD = {b"../victim": b"..-victim", b".git/hooks/x": b".gitxhooksxx", b"/tmp/victim": b"xtmp/victim"}


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("name", ODD)
def test_an_index_with_odd_paths_writes_nothing_outside(repo, job, git, tmp_path, name):
    """Paths that lead out of the tree or into a repository, as an archive may have them in its index."""
    blob = git(repo, "hash-object", "-w", "a.py").strip()
    git(repo, "update-index", "--add", "--cacheinfo", f"100644,{blob},{ODD[name].decode()}")
    index = repo / ".git" / "index"
    data = index.read_bytes()[:-20].replace(ODD[name], name)
    index.write_bytes(data + hashlib.sha1(data, usedforsecurity=False).digest())
    works(repo, job)
    assert not (tmp_path / "victim").exists()
    assert not Path("/tmp/victim").exists()
    assert not (repo / ".git" / "hooks" / "x").exists()


# Hooks that a configuration names, from git 2.54 on


def test_no_hook_is_in_the_configuration_that_git_is_given(repo, home, trap):
    """Whichever git: an innocent hook of the user's own would run a file that a model wrote."""
    for place in (repo / ".git" / "config", home / ".gitconfig"):
        with place.open("a") as config:
            config.write(
                f'[hook "lint"]\n\tevent = post-commit\n\tcommand = sh ./lint.sh\n[hook "a.b"]\n\tcommand = {trap.path}\n'
            )
    with (home / ".gitconfig").open("a") as config:
        config.write("[hook]\n\tjobs = 2\n[include]\n\tpath = more\n")
    (home / "more").write_text('[hook "more"]\n\tcommand = x\n\tevent = pre-commit\n\tenabled = true\n')
    listed = asyncio.run(asyncio.run(find_repository(repo)).git("config", "--list")).text
    assert "hook." not in listed
    assert "core.hookspath=/dev/null" in listed
    # Where there is no repository yet, nothing of the user's counts at all.
    listed = asyncio.run(run_git(["config", "--list"], home)).text
    assert "hook." not in listed
    assert "core.hookspath=/dev/null" in listed


def newer_git():
    """A git that knows hooks by name, "" for none."""
    for program in dict.fromkeys([*GITS.values()][::-1]):
        said = subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout.split()[2]
        if tuple([int(part) for part in re.findall(r"\d+", said)[:2]]) >= (2, 54):
            return program
    return ""


@pytest.mark.skipif(not newer_git(), reason="git 2.54 or newer: NEWER_GIT=/path/to/git names one")
@pytest.mark.parametrize("whose", ["the repository's", "the user's"])
def test_hooks_by_name_do_not_run_where_git_knows_them(repo, job, home, trap, whose):
    text = CONFIGURATIONS["hooks by name"]
    if whose == "the repository's":
        configure(repo, text, trap)
    else:
        with (home / ".gitconfig").open("a") as config:
            config.write(text.format(trap=trap.path))
    works(repo, job)
    assert not trap()
    # It is a trap.
    subprocess.run([newer_git(), "commit", "-q", "--allow-empty", "-m", "x"], cwd=repo, check=True)
    assert trap()
