import asyncio
import os
import subprocess

import pytest

from callboard.coding.git.process import run_git
from callboard.coding.git.settings import (
    Setting,
    allowed_protocols,
    allowed_settings,
    format_settings,
    parse_settings,
    unused_filters,
)


def settings_of(text, scope="local"):
    """The settings of a configuration file, as git reads it."""
    done = subprocess.run(
        ["git", "config", "--file", "-", "--list", "-z"], input=text.encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    items = [part for item in os.fsdecode(done.stdout).split("\0")[:-1] for part in (scope, item)]
    return parse_settings(items)


def allowed(text, scope="local", *, online=False):
    return [each.key for each in allowed_settings(settings_of(text, scope), online=online)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("plain", "plain"),
        ('quo"te', 'quo"te # no comment ; none'),
        ("back\\slash", "back\\slash\\n"),
        ("sp ace]", "  spaces  "),
        ("ü", "line\nbreak\ttab\b"),
        (os.fsdecode(b"\xe9"), os.fsdecode(b"\xe9\r")),
        ("", ""),
    ],
)
def test_git_reads_what_is_written_as_it_was(tmp_path, name, value):
    given = [Setting("local", "remote", name, "url", value), Setting("local", "core", None, "bare", None)]
    (tmp_path / "config").write_bytes(os.fsencode(format_settings(given)))
    asked = ["config", "--file", str(tmp_path / "config"), "--list", "-z"]
    listed = asyncio.run(run_git(asked, tmp_path)).items
    assert list(parse_settings([part for item in listed for part in ("local", item)])) == given


def test_unknown_settings_of_git_do_not_count():
    text = '[core]\n\tnewProgram = x\n[future]\n\tcommand = x\n[future "x"]\n\tcommand = x\n[user]\n\tname = A\n\trun = x\n'
    assert allowed(text) == ["user.name"]
    assert allowed(text, "global", online=True) == ["user.name"]


TRANSPORT = (
    "[core]\n\tsshCommand = x\n\tgitProxy = x\n[credential]\n\thelper = x\n[http]\n\tproxy = x\n\textraHeader = x\n"
    '[url "x"]\n\tinsteadOf = y\n[remote "o"]\n\turl = x\n\tuploadpack = x\n\treceivepack = x\n\tvcs = x\n'
    '[lfs]\n\turl = x\n[lfs "customtransfer.x"]\n\tpath = x\n[lfs "Extension.x"]\n\tclean = x\n'
)


def test_what_the_network_needs_is_the_users_own():
    assert allowed(TRANSPORT) == []
    assert allowed(TRANSPORT, "global") == []
    assert allowed(TRANSPORT, online=True) == ["http.extraheader", "remote.o.url", "lfs.url"]
    own = allowed(TRANSPORT, "global", online=True)
    assert "lfs.Extension.x.clean" not in own
    assert len(own) == len(settings_of(TRANSPORT)) - 1


def test_a_push_moves_no_branch_of_the_users():
    text = '[remote "o"]\n\tfetch = +refs/heads/*:refs/{}/*\n'
    assert allowed(text.format("remotes/o"), online=True) == ["remote.o.fetch"]
    assert allowed(text.format("heads"), online=True) == []


def test_files_that_say_what_git_leaves_out_count_whosever_they_are():
    text = "[core]\n\texcludesFile = x\n\tattributesFile = x\n\tworktree = x\n\thooksPath = x\n"
    for scope in ("local", "global"):
        assert allowed(text, scope) == ["core.excludesfile", "core.attributesfile"]


def test_the_format_of_a_repository_is_its_own():
    text = "[core]\n\trepositoryFormatVersion = 1\n[extensions]\n\tobjectFormat = sha256\n\tworktreeConfig = true\n\tnew = x\n"
    assert allowed(text) == ["core.repositoryformatversion", "extensions.objectformat", "extensions.new"]
    assert allowed(text, "global") == []


LFS = '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\trequired = true\n'


def test_a_filter_is_run_whole_or_not_at_all():
    assert allowed(LFS) == ["filter.lfs.clean", "filter.lfs.smudge", "filter.lfs.required"]
    assert allowed(f'{LFS}[filter "lfs"]\n\tprocess = "git-lfs filter-process; x"\n') == []
    assert unused_filters(settings_of(f'{LFS}[filter "x"]\n\tclean = x\n')) == ("x",)


def test_protocols_are_those_that_most_use_and_the_users_own():
    text = '[protocol]\n\tallow = always\n[protocol "{}"]\n\tallow = {}\n'
    usual = ("https", "http", "ssh", "git")
    assert allowed_protocols(settings_of(text.format("file", "always"))) == usual
    assert allowed_protocols(settings_of(text.format("file", "always"), "global")) == (*usual, "file")
    assert allowed_protocols(settings_of(text.format("http", "never"), "system")) == ("https", "ssh", "git")
    assert allowed_protocols(settings_of(text.format("ext", "always"), "global")) == usual
