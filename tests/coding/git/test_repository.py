import asyncio
import os
from pathlib import Path

import pytest

from callboard.coding.git.process import GitFailed
from callboard.coding.git.repository import Repository, find_repository
from callboard.coding.git.settings import unused_filters
from callboard.coding.git.tree_state import compute_digest
from callboard.errors import CallerError
from callboard.text.display import display_names

run = asyncio.run


def open_repository(directory):
    repository = run(find_repository(directory))
    assert repository is not None
    return repository


LOCAL = '[protocol "file"]\n\tallow = always\n'
"""The user's leave to push to a folder of this machine."""

# Finding


@pytest.mark.usefixtures("home")
def test_a_folder_without_one(tmp_path):
    assert run(find_repository(tmp_path)) is None


def test_a_folder_of_one(repo):
    repository = open_repository(repo / "src")
    assert (repository.root, repository.git_directory, repository.folder) == (repo, repo / ".git", "src")
    assert open_repository(repo).folder == ""


def test_a_bare_one_is_refused(tmp_path, git, repo):
    git(tmp_path, "clone", "-q", "--bare", str(repo), "bare.git")
    for place in (tmp_path / "bare.git", repo / ".git", repo / ".git" / "refs"):
        with pytest.raises(CallerError, match="a bare repository, or the inside of one"):
            run(find_repository(place))


@pytest.mark.parametrize("content", ["gitdir: nowhere\n", "rubbish\n", ""])
@pytest.mark.usefixtures("home")
def test_one_that_is_broken(tmp_path, content):
    (tmp_path / ".git").write_text(content)
    with pytest.raises(CallerError):
        run(find_repository(tmp_path))


def test_a_submodule_and_a_worktree(tmp_path, git, repo):
    git(repo, "worktree", "add", "-q", "../second")
    second = open_repository(tmp_path / "second")
    assert second.common == repo / ".git"
    assert second.git_directory == repo / ".git" / "worktrees" / "second"
    git(tmp_path, "init", "-q", "outer")
    git(tmp_path / "outer", "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(repo), "inner")
    inner = open_repository(tmp_path / "outer" / "inner")
    assert inner.root == tmp_path / "outer" / "inner"
    assert run(inner.branch()) == "main"


@pytest.mark.usefixtures("git")
def test_one_of_another_user(repo, home, git):
    """It is refused as git refuses it, until the user trusts it."""
    if os.getuid():
        pytest.skip("root: only root gives files away")
    for path in [repo, *repo.rglob("*")]:
        os.lchown(path, 4242, 4242)
    with pytest.raises(CallerError, match="dubious ownership") as refused:
        open_repository(repo)
    assert refused.value.hint == f"if you trust them: git config --global --add safe.directory {repo}"
    git(home, "config", "--global", "--add", "safe.directory", str(repo))
    repository = open_repository(repo)
    assert not run(repository.status()).changes
    assert run(repository.log())[0].subject == "second"


def test_a_shallow_one(tmp_path, git, repo):
    git(tmp_path, "clone", "-q", "--depth=1", repo.as_uri(), "shallow")
    repository = open_repository(tmp_path / "shallow")
    assert [each.subject for each in run(repository.log())] == ["second"]
    assert len(run(compute_digest(repository))) == 40


def test_a_sparse_one(git, repo):
    git(repo, "sparse-checkout", "set", "--no-cone", "a.py")
    assert not (repo / "src").exists()
    repository = open_repository(repo)
    assert not run(repository.status()).changes
    assert run(compute_digest(repository)) == git(repo, "rev-parse", "HEAD^{tree}").strip()


def test_one_of_longer_names(tmp_path, git):
    git(tmp_path, "init", "-q", "--object-format=sha256", "new")
    (tmp_path / "new" / "a").write_text("x\n")
    repository = open_repository(tmp_path / "new")
    assert len(run(repository.commit("first"))) == 64
    (tmp_path / "new" / "a").unlink()
    (tmp_path / "new" / "b").write_text("y\n")
    assert len(run(compute_digest(repository))) == 64
    run(repository.commit("second"))
    assert git(tmp_path / "new", "ls-files") == "b\n"


# Looking


def test_without_a_commit(tmp_path, git):
    git(tmp_path, "init", "-q", "new")
    (tmp_path / "new" / "a").write_text("x\n")
    repository = open_repository(tmp_path / "new")
    assert run(repository.head()) == ""
    assert run(repository.log()) == ()
    assert run(repository.branch()) == "main"
    assert run(repository.branches()) == {}
    assert [each.path for each in run(repository.status()).changes] == ["a"]
    assert run(repository.diff()).text == ""
    assert run(repository.commit("first"))
    assert run(repository.diff()).text == ""


def test_detached_and_under_way(repo, git):
    repository = open_repository(repo)
    assert repository.operation == ""
    git(repo, "checkout", "-q", "--detach", "HEAD~1")
    assert (run(repository.branch()), run(repository.head())) == ("", git(repo, "rev-parse", "main~1").strip())
    git(repo, "checkout", "-qb", "other", "main~1")
    (repo / "a.py").write_text("different\n")
    git(repo, "commit", "-qam", "third")
    git(repo, "merge", "main", check=False)
    assert repository.operation == "merge"
    assert [(each.path, each.staged + each.unstaged) for each in run(repository.status()).changes] == [("a.py", "UU")]
    git(repo, "merge", "--abort")
    git(repo, "rebase", "main", check=False)
    assert repository.operation == "rebase"
    git(repo, "rebase", "--abort")
    git(repo, "cherry-pick", "main", check=False)
    assert repository.operation == "cherry-pick"


ODD = [
    "sp ace",
    "quo\"te'",
    "new\nline",
    "tab\tx",
    "-rf",
    "--option",
    "*",
    ":(top)x",
    "ü",
    "back\\slash",
    "%s $(x) `y`",
]


@pytest.mark.parametrize("name", [*ODD, os.fsdecode(b"latin-\xe9")])
def test_odd_names(repo, git, name):
    repository = open_repository(repo)
    (repo / name).write_text("odd\n")
    assert [each.path for each in run(repository.status()).changes] == [name]
    assert run(repository.new_files()) == (name,)
    before = run(compute_digest(repository))
    run(repository.stage([name]))
    assert "+odd" in run(repository.diff(files=[name])).text
    assert "+odd" not in run(repository.diff(files=["a.py"])).text
    run(repository.commit("odd"))
    assert git(repo, "rev-parse", "HEAD^{tree}").strip() == before
    (repo / name).write_text("changed\n")
    run(repository.restore([name]))
    assert (repo / name).read_text() == "odd\n"
    assert display_names([name]).isprintable()


@pytest.mark.parametrize(
    "name", ["--output=x", "-O/etc/passwd", "main..main~1", "nothing", "HEAD:a.py", "@{-9}", "a b", ""]
)
def test_names_that_are_no_commit(repo, name):
    repository = open_repository(repo)
    assert run(repository.commit_id(name or "-")) == ""
    if name:
        with pytest.raises(GitFailed, match="unknown branch or commit"):
            run(repository.diff(name))
        with pytest.raises(GitFailed, match="unknown branch or commit"):
            run(repository.diff("main", name))
    assert not (repo / "x").exists()


def test_differences(repo, git):
    repository = open_repository(repo)
    git(repo, "checkout", "-qb", "feature")
    (repo / "src" / "b.py").write_text("changed\n")
    git(repo, "commit", "-qam", "third")
    git(repo, "checkout", "-q", "main")
    assert "+changed" in run(repository.diff(branch="feature")).text
    assert "+changed" in run(repository.diff("main", "feature")).text
    (repo / "a.py").write_text("staged\n")
    git(repo, "add", "a.py")
    assert "+staged" in run(repository.diff()).text
    assert "-changed" in run(repository.diff("feature")).text
    cut = run(repository.diff(limit=20))
    assert (cut.cut, len(cut.output)) == (True, 20)


def test_the_users_ways_to_show_a_difference_do_not_change_ours(repo, git):
    for key, value in (
        ("diff.noprefix", "true"),
        ("diff.mnemonicPrefix", "true"),
        ("color.ui", "always"),
        ("diff.external", "false"),
        ("core.quotePath", "true"),
        ("status.short", "true"),
        ("status.branch", "true"),
        ("log.showSignature", "true"),
        ("pager.diff", "false"),
    ):
        git(repo, "config", key, value)
    repository = open_repository(repo)
    (repo / "ü").write_text("x\n")
    run(repository.stage())
    assert run(repository.diff()).text.startswith("diff --git a/ü b/ü\nnew file mode")
    assert [each.path for each in run(repository.status()).changes] == ["ü"]
    assert run(repository.log())[0].subject == "second"


# Changing


def test_who_commits(repo, git, home):
    repository = open_repository(repo)
    (repo / "a.py").write_text("x\n")
    run(repository.commit("mine"))
    assert git(repo, "log", "-1", "--format=%an <%ae> %cn <%ce>") == "Ada <ada@example.org> Ada <ada@example.org>\n"
    (home / ".gitconfig").unlink()
    (repo / "a.py").write_text("y\n")
    run(open_repository(repo).commit("ours"))
    ours = "Callboard <callboard@localhost>"
    assert git(repo, "log", "-1", "--format=%an <%ae> %cn <%ce>") == f"{ours} {ours}\n"


def test_a_commit_takes_what_is_staged_else_everything(repo, git):
    repository = open_repository(repo)
    (repo / "a.py").write_text("x\n")
    (repo / "new.py").write_text("y\n")
    (repo / "src" / "b.py").unlink()
    run(repository.stage(["a.py"]))
    run(repository.commit("only this"))
    assert git(repo, "show", "--name-status", "--format=") == "M\ta.py\n"
    run(repository.commit("# not a comment\n\nall of it"))
    assert git(repo, "show", "--name-status", "--format=") == "A\tnew.py\nD\tsrc/b.py\n"
    with pytest.raises(GitFailed, match="nothing to commit"):
        run(repository.commit("again"))


def test_a_file_becomes_a_folder_and_back(repo, git):
    repository = open_repository(repo)
    (repo / "a.py").unlink()
    (repo / "a.py").mkdir()
    (repo / "a.py" / "x").write_text("x\n")
    run(repository.commit("folder"))
    assert git(repo, "ls-files") == "a.py/x\nsrc/b.py\n"
    (repo / "a.py" / "x").unlink()
    (repo / "a.py").rmdir()
    (repo / "a.py").symlink_to("/etc/passwd")
    run(repository.commit("link"))
    assert git(repo, "ls-files", "-s", "a.py").startswith("120000")


def test_another_repository_in_the_tree_is_left_out(repo, git):
    repository = open_repository(repo)
    git(repo, "init", "-q", "inner")
    (repo / "inner" / "x").write_text("x\n")
    (repo / "y").write_text("y\n")
    assert run(repository.stage()) == ("inner/",)
    run(repository.commit("outer"))
    assert git(repo, "show", "--name-only", "--format=") == "y\n"
    with pytest.raises(GitFailed, match="nothing to commit but inner/"):
        run(repository.commit("inner"))
    run(compute_digest(repository))


def test_what_is_hidden_is_no_part_of_it(repo, git):
    repository = open_repository(repo)
    repository.hidden = frozenset({"node_modules", "web/node_modules"})
    (repo / "node_modules").symlink_to("/usr")
    (repo / "web" / "node_modules").mkdir(parents=True)
    (repo / "web" / "node_modules" / "x").write_text("x\n")
    before = run(compute_digest(repository))
    assert before == git(repo, "rev-parse", "HEAD^{tree}").strip()
    with pytest.raises(GitFailed, match="nothing to commit"):
        run(repository.commit("hidden"))


@pytest.mark.parametrize(
    "name", ["-f", "--force", "a b", "a..b", "x.lock", "@", "@{-1}", "", "/x", "x/", "a\nb", "HEAD:x"]
)
def test_names_that_are_no_branch(repo, name):
    repository = open_repository(repo)
    for call in (repository.create_branch, repository.switch, repository.check_branch):
        with pytest.raises(GitFailed):
            run(call(name))
    assert run(repository.branch()) == "main"


def test_branches(repo):
    repository = open_repository(repo)
    run(repository.create_branch("feature/x"))
    run(repository.switch("feature/x"))
    assert run(repository.branch()) == "feature/x"
    assert set(run(repository.branches())) == {"main", "feature/x"}
    with pytest.raises(GitFailed, match="already exists"):
        run(repository.create_branch("main"))
    (repo / "a.py").write_text("work\n")
    run(repository.commit("third"))
    (repo / "a.py").write_text("not committed\n")
    with pytest.raises(GitFailed, match="overwritten"):
        run(repository.switch("main"))
    assert (repo / "a.py").read_text() == "not committed\n"


def test_pushing(repo, git, tmp_path, home):
    (home / ".gitconfig").write_text(f"{(home / '.gitconfig').read_text()}{LOCAL}")
    git(tmp_path, "init", "-q", "--bare", "far.git")
    git(repo, "remote", "add", "origin", str(tmp_path / "far.git"))
    hook = repo / ".git" / "hooks" / "pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    repository = open_repository(repo)
    run(repository.push("main"))
    assert git(tmp_path / "far.git", "rev-parse", "main") == git(repo, "rev-parse", "main")
    assert not (tmp_path / "ran").exists()
    assert git(repo, "rev-parse", "--abbrev-ref", "main@{upstream}") == "origin/main\n"
    for branch, remote in (
        ("main", "elsewhere"),
        ("main", str(tmp_path / "far.git")),
        ("main", "--mirror"),
        ("x", "origin"),
    ):
        with pytest.raises(GitFailed, match="there is no"):
            run(repository.push(branch, remote))


def test_a_repository_of_this_machine_is_not_pushed_to_unless_the_user_says_so(repo, git, tmp_path):
    """Its hooks, and what its configuration names, would run here."""
    git(tmp_path, "init", "-q", "--bare", "far.git")
    hook = tmp_path / "far.git" / "hooks" / "post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    git(repo, "remote", "add", "origin", str(tmp_path / "far.git"))
    git(repo, "config", "protocol.file.allow", "always")
    with pytest.raises(GitFailed, match="transport 'file' not allowed") as refused:
        run(open_repository(repo).push("main"))
    assert "git config --global protocol.file.allow always" in str(refused.value)
    assert not (tmp_path / "ran").exists()


def test_a_push_goes_by_the_users_own_settings(repo, git, tmp_path, home):
    """Its ssh and helper are those of the user, not those that the repository names."""
    for name in ("theirs", "mine"):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-{name}\nexit 1\n")
        script.chmod(0o755)
    git(repo, "remote", "add", "origin", "ssh://localhost/x")
    git(repo, "config", "core.sshCommand", str(tmp_path / "theirs"))
    git(home, "config", "--global", "core.sshCommand", str(tmp_path / "mine"))
    with pytest.raises(GitFailed):
        run(open_repository(repo).push("main"))
    assert (tmp_path / "ran-mine").exists()
    assert not (tmp_path / "ran-theirs").exists()


def test_what_is_harmless_counts(repo, git, home):
    """Line endings, a name for a folder of the user's, files that are to be left out, keys that have no value."""
    name = 'At "Work" \\ ; #x'
    git(home, "config", "--file", str(home / "work"), "user.name", name)
    git(home, "config", "--global", f"includeIf.gitdir:{repo}/.path", str(home / "work"))
    (home / "ignored").write_text("*.log\n")
    git(home, "config", "--global", "core.excludesFile", "~/ignored")
    with (repo / ".git" / "config").open("a") as config:
        config.write("[core]\n\tautocrlf\n")
    (repo / "a.py").write_bytes(b"one\r\nmore\r\nand more\r\n")
    (repo / "x.log").touch()
    repository = open_repository(repo)
    run(repository.commit("work"))
    assert git(repo, "show", "HEAD:a.py") == "one\nmore\nand more\n"
    assert git(repo, "log", "-1", "--format=%an") == f"{name}\n"
    assert git(repo, "show", "--name-only", "--format=") == "a.py\n"


def test_a_format_that_git_does_not_know_is_refused(repo, git):
    """It is not hidden from git that the files are in another format."""
    repository = open_repository(repo)
    git(repo, "config", "core.repositoryformatversion", "1")
    git(repo, "config", "extensions.fromTheFuture", "true")
    with pytest.raises(GitFailed, match="unknown repository extension"):
        run(repository.branches())


def test_a_branch_that_is_packed_is_deleted(repo, git):
    git(repo, "branch", "old")
    git(repo, "pack-refs", "--all")
    repository = open_repository(repo)
    run(repository.git("update-ref", "-d", "refs/heads/old"))
    assert "old" not in git(repo, "branch")
    assert not (repo / ".git" / "packed-refs").is_symlink()
    assert git(repo, "reflog", "main")


def test_many_files_are_counted(repo):
    folder = repo / "many"
    folder.mkdir()
    for number in range(500):
        (folder / f"{number}.txt").touch()
    repository = open_repository(repo)
    assert len(run(repository.new_files())) == 500
    assert len(run(repository.status(every=True)).changes) == 500
    assert [each.path for each in run(repository.status()).changes] == ["many/"]
    run(repository.commit("many"))
    assert not run(repository.status()).changes


# What a repository, or a model, would have run


@pytest.fixture
def trap(tmp_path):
    """A program that leaves a trace when it is run."""
    script = tmp_path / "trap"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat 2>/dev/null\n")
    script.chmod(0o755)

    def sprung():
        return (tmp_path / "ran").exists()

    sprung.path = str(script)
    return sprung


HOOKS = [
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg"),
    *("commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-auto-gc"),
    *("post-rewrite", "fsmonitor-watchman", "post-index-change", "reference-transaction"),
]


def everything(repository: Repository, repo: Path, number: int = 0) -> None:
    """Each thing that we ask of git."""

    async def all_of_it() -> None:
        (repo / "a.py").write_text(f"work {number}\n")
        (repo / f"new-{number}.py").write_text("new\n")
        await repository.status(every=True)
        await repository.diff()
        await compute_digest(repository)
        await repository.new_files()
        await repository.restore(["src/b.py"])
        left_out = await repository.stage()
        if left_out:
            (repo / "harmless").write_text(f"{number}\n")
        try:
            await repository.commit(f"work {number}")
        except GitFailed as error:
            assert "nothing to commit" in error.message  # noqa: PT017  # the message depends on the trap
        await repository.log()
        await repository.create_branch(f"x{number}")
        await repository.switch(f"x{number}")
        await repository.diff("HEAD~1")

    run(all_of_it())


def test_hooks_never_run(repo, trap):
    repository = open_repository(repo)
    hooks = repo / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in HOOKS:
        (hooks / name).unlink(missing_ok=True)
        (hooks / name).symlink_to(trap.path)
    everything(repository, repo)
    assert not trap()


# What git would run, and the attribute that says what for.
KEYS = {
    "core.hooksPath": "",
    "core.fsmonitor": "",
    "core.pager": "",
    "core.editor": "",
    "core.sshCommand": "",
    "core.askPass": "",
    "diff.external": "",
    "gpg.program": "",
    "credential.helper": "",
    "filter.x.clean": "filter=x",
    "filter.y.smudge": "filter=y",
    "filter.z.process": "filter=z",
    "filter.X.Y.clean": "filter=X.Y",
    "filter.a=b.clean": "filter=a=b",
    "diff.x.command": "diff=x",
    "diff.y.textconv": "diff=y",
    "merge.x.driver": "merge=x",
    "trailer.x.command": "",
    "alias.status": "",
    "interactive.diffFilter": "",
    "pager.diff": "",
    "sequence.editor": "",
}


@pytest.mark.parametrize("round_", range(5))
def test_what_configuration_names_never_runs(repo, tmp_path, round_):
    """Also if it was written after the repository was opened; before that, test_hostile_repositories.py tries it."""
    repository = open_repository(repo)
    # One driver of a kind applies to a file, so each round has others.
    attributes = (
        [value for value in KEYS.values() if value.startswith("filter")][round_],
        ["diff=x", "diff=y"][round_ % 2],
    )
    (tmp_path / "traps").mkdir()
    with (repo / ".git" / "config").open("a") as config:
        for key in KEYS:
            trap = tmp_path / "traps" / key
            trap.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran-{key}'\ncat 2>/dev/null\n")
            trap.chmod(0o755)
            section, _, name = key.rpartition(".")
            first, _, inner = section.partition(".")
            value = f"!{trap}" if first == "alias" else trap.parent if name == "hooksPath" else trap
            config.write(f'[{first} "{inner}"]\n\t{name} = {value}\n' if inner else f"[{first}]\n\t{name} = {value}\n")
            if first == "filter":
                config.write("\trequired = true\n")
        config.write("[commit]\n\tgpgSign = true\n[log]\n\tshowSignature = true\n")
    for name in HOOKS:
        (tmp_path / "traps" / name).symlink_to(tmp_path / "traps" / "core.pager")
    (repo / ".gitattributes").write_text(f"* {' '.join(attributes)} merge=x\nharmless -filter\n")
    everything(repository, repo)
    assert [path.name for path in tmp_path.glob("ran-*")] == []


def test_files_of_a_filter_that_is_not_run_are_not_committed(repo, git, trap):
    """Such as secrets, which only the filter would have hidden."""
    git(repo, "config", "filter.crypt.clean", trap.path)
    (repo / ".gitattributes").write_text("secret* filter=crypt\n")
    git(repo, "add", ".gitattributes")
    git(repo, "commit", "-qm", "attributes")
    (repo / "secret.txt").write_text("plain\n")
    (repo / "other.txt").write_text("other\n")
    repository = open_repository(repo)
    assert unused_filters(run(repository.settings())) == ("crypt",)
    assert run(repository.stage()) == ("secret.txt",)
    run(repository.commit("work"))
    assert git(repo, "show", "--name-only", "--format=") == "other.txt\n"
    assert not trap()


def test_git_lfs_is_the_one_filter_that_is_run(repo, git):
    for key, value in (
        ("clean", "git-lfs clean -- %f"),
        ("smudge", "git-lfs smudge -- %f"),
        ("process", "git-lfs filter-process"),
        ("required", "true"),
    ):
        git(repo, "config", f"filter.lfs.{key}", value)
    git(repo, "config", "filter.like.clean", "git-lfs clean -- %f; true")
    assert unused_filters(run(open_repository(repo).settings())) == ("like",)


def test_a_git_that_is_put_into_the_tree_means_nothing(repo, git, trap, tmp_path):
    """A worktree's `.git` is a file: one that leads to another repository, with a trap in it."""
    git(repo, "worktree", "add", "-q", "../tree")
    repository = open_repository(tmp_path / "tree")
    git(tmp_path, "init", "-q", "evil")
    git(tmp_path / "evil", "config", "core.fsmonitor", trap.path)
    git(tmp_path / "evil", "config", "filter.x.clean", trap.path)
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {tmp_path}/evil/.git\n")
    (tmp_path / "tree" / ".gitattributes").write_text("* filter=x\n")
    everything(repository, tmp_path / "tree")
    assert run(repository.log())[0].subject.startswith("work")
    assert not trap()


def test_a_submodule_with_a_trap_is_not_looked_into(repo, git, trap, tmp_path):
    git(tmp_path, "clone", "-q", str(repo), "library")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "library"), "inner")
    git(repo, "commit", "-qm", "submodule")
    inner = repo / "inner"
    git(inner, "config", "filter.x.clean", trap.path)
    git(inner, "config", "core.fsmonitor", trap.path)
    (inner / ".gitattributes").write_text("* filter=x\n")
    # Of the same size, so that its content has to be compared.
    (inner / "a.py").write_text("ONE\nMORE\n")
    os.utime(inner / "a.py", (1, 1))
    everything(open_repository(repo), repo)
    assert not trap()
