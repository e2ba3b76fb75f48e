"""A project's file counts only where nobody else can say what is in it."""

import os
from pathlib import Path

import pytest

from callboard.configuration import load_settings
from callboard.configuration.ownership import find_unsafe_owner

ANOTHER = 54321


@pytest.fixture
def give_away(monkeypatch):
    """Makes files another user's; where only root can do that, all that is there is another's."""

    def given(*paths):
        if os.getuid() == 0:
            for path in paths:
                os.chown(path, ANOTHER, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(os, "getuid", lambda: ANOTHER)

    return given


@pytest.fixture
def project(tmp_path):
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / "callboard.toml").write_text("max_rounds = 3")
    return tmp_path / "project"


@pytest.fixture
def shared(tmp_path):
    """A directory where everybody may make directories, such as /tmp, and one of ours in it."""
    directory = tmp_path / "shared"
    (directory / "mine").mkdir(parents=True)
    directory.chmod(0o1777)
    return directory


@pytest.fixture
def load(tmp_path):
    own = tmp_path / "config" / "callboard" / "callboard.toml"
    own.parent.mkdir(parents=True)

    def loaded(cwd, trusted=None):
        own.write_text(f"trusted = ['{trusted}']" if trusted else "")
        return load_settings({}, cwd, {"XDG_CONFIG_HOME": str(tmp_path / "config")})

    return loaded


def test_a_file_of_ours_is_read(load, project):
    settings = load(project)
    assert (settings.max_rounds, settings.notices) == (3, ())


def test_a_projects_file_of_another_user_is_not_read(load, project, give_away):
    path = project / "callboard.toml"
    give_away(path)
    settings = load(project)
    assert settings.max_rounds == 20
    (notice,) = settings.notices
    assert notice.startswith(f"{path}: not read: {path} belongs to another user (uid {ANOTHER})") or os.getuid()
    assert "write what you want of it into your own file, or make it yours with chown" in notice


@pytest.mark.parametrize("what", [".", ".git"])
def test_a_directory_of_another_user_makes_no_file_the_projects(load, project, give_away, what):
    (project / "src").mkdir()
    give_away(project / what)
    settings = load(project / "src")
    assert settings.max_rounds == 20
    assert "belongs to another user" in settings.notices[0]


def test_a_user_may_trust_a_directory_of_another_user(load, project, give_away):
    give_away(project, project / ".git", project / "callboard.toml")
    if os.getuid() == 0:
        assert load(project, project).max_rounds == 3
    assert load(project).max_rounds == 20


@pytest.mark.parametrize(
    ("what", "mode", "why"),
    [
        ("callboard.toml", 0o646, "everybody may write to "),
        (".", 0o757, "everybody may write to "),
        ("..", 0o777, "everybody may write to "),
    ],
)
def test_a_file_that_everybody_can_write_to_is_not_read_even_if_it_is_trusted(load, project, what, mode, why):
    place = Path(os.path.normpath(project / what))
    place.chmod(mode)
    for trusted in (None, project):
        settings = load(project, trusted)
        assert settings.max_rounds == 20
        assert settings.notices == (f"{project / 'callboard.toml'}: not read: {why}{place}; chmod o-w {place}",)


def test_what_a_group_may_write_to_is_read_if_the_group_is_the_users_alone(load, project, monkeypatch):
    import grp
    import pwd

    path = project / "callboard.toml"
    path.chmod(0o664)
    group = path.stat().st_gid
    user = pwd.struct_passwd(("me", "x", os.getuid(), group, "", "/home/me", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    for name, members, rounds in (("me", [], 3), ("me", ["eve"], 20), ("staff", [], 20)):
        about = grp.struct_group((name, "x", group, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, about=about: about)
        assert load(project).max_rounds == rounds, (name, members)
        assert load(project, project).max_rounds == 3


def test_a_repository_that_another_user_made_in_a_shared_directory_gives_nobody_settings(load, shared, give_away):
    """`/tmp/.git` of an attacker would make `/tmp/callboard.toml` the file of all who work below /tmp."""
    (shared / ".git").mkdir()
    (shared / "callboard.toml").write_text("max_rounds = 1")
    give_away(shared / ".git")
    for _ in range(2):
        settings = load(shared / "mine")
        assert settings.max_rounds == 20
        assert len(settings.notices) == 1
        give_away(shared / "callboard.toml")


def test_a_directory_of_another_user_in_a_shared_one_is_not_read_even_if_it_is_trusted(load, shared, give_away):
    (shared / "mine" / "callboard.toml").write_text("max_rounds = 1")
    assert load(shared / "mine", shared / "mine").max_rounds == 1
    give_away(shared / "mine", shared / "mine" / "callboard.toml")
    assert load(shared / "mine", shared / "mine").max_rounds == 20


def test_a_link_to_a_file_of_another_user_is_not_read(load, project, shared, give_away):
    path = project / "callboard.toml"
    (shared / "theirs").write_text("max_rounds = 1")
    path.unlink()
    path.symlink_to(shared / "theirs")
    assert load(project).max_rounds == 1
    give_away(shared / "theirs")
    assert load(project).max_rounds == 20


def test_a_file_that_is_not_read_hides_no_other(load, project):
    """Who may write to one folder of a repository could else take away what the repository's own file restricts."""
    below = project / "src"
    below.mkdir()
    (below / "callboard.toml").write_text("")
    (below / "callboard.toml").chmod(0o666)
    settings = load(below)
    assert (settings.max_rounds, len(settings.notices)) == (3, 1)


def test_nothing_is_asked_where_there_are_no_such_owners(project, monkeypatch):
    (project / "callboard.toml").chmod(0o666)
    assert find_unsafe_owner(project / "callboard.toml") is not None
    monkeypatch.delattr(os, "getuid")
    assert find_unsafe_owner(project / "callboard.toml") is None
