"""Who is told of durable jobs, as the user's own file says."""

import pytest

from callboard.configuration import load_settings
from callboard.configuration.jobs import NotifySettings
from callboard.errors import CallerError


@pytest.fixture
def load(tmp_path):
    """Loads the settings with these two files, from the project's directory."""
    own, project = tmp_path / "config/callboard/callboard.toml", tmp_path / "project"
    own.parent.mkdir(parents=True)
    project.mkdir()

    def load(text, projects=""):
        own.write_text(f'trusted = ["{project}"]\n{text}')
        (project / "callboard.toml").write_text(projects)
        return load_settings({}, project, {"XDG_CONFIG_HOME": str(tmp_path / "config")}).jobs.notify

    return load


def test_commands_and_webhooks(load):
    text = '[[jobs.notify]]\ncommand = ["tell", "me"]\n[[jobs.notify]]\nurl = "https://user:pass@example.org/secret"\n'
    assert [each.place for each in load(text)] == ["tell", "example.org"]
    assert load('[jobs]\nnotify = [{ command = ["tell", "me"] }]') == (NotifySettings(command=("tell", "me")),)
    assert load("") == ()


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("{}", "name either a command or a url"),
        ('{ command = ["a"], url = "http://a" }', "name either a command or a url"),
        ('{ command = [""] }', "a command begins with a program"),
        ('{ command = "a b" }', "array"),
        ('{ url = "ftp://a" }', "http:// or https://"),
        ('{ url = "http://" }', "http:// or https://"),
        ('{ webhook = "http://a" }', "webhook"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(load, rows, why):
    with pytest.raises(CallerError) as caught:
        load(f"[jobs]\nnotify = [{rows}]")
    assert why in str(caught.value)
    assert "callboard.toml:3: jobs.notify" in str(caught.value)


def test_no_project_says_who_is_told_not_even_a_trusted_one(load):
    with pytest.raises(CallerError, match="no project says who is told of your jobs"):
        load("", '[[jobs.notify]]\ncommand = ["curl"]')
