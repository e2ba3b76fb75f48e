"""Who is told of durable jobs, how fast they go and how long they are kept, as the user's own file says."""

from datetime import timedelta

import pytest

from callboard.configuration.jobs import NotifySettings, QueueSettings
from callboard.errors import CallerError


@pytest.fixture
def load(load_files):
    return lambda text, projects="": load_files(text, projects).jobs


def test_commands_and_webhooks(load):
    text = '[[jobs.notify]]\ncommand = ["tell", "me"]\n[[jobs.notify]]\nurl = "https://user:pass@example.org/secret"\n'
    assert [each.place for each in load(text).notify] == ["tell", "example.org"]
    assert load('[jobs]\nnotify = [{ command = ["tell", "me"] }]').notify == (NotifySettings(command=("tell", "me")),)
    assert load("").notify == ()


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("{}", "name either a command or a url"),
        ('{ command = ["a"], url = "http://a" }', "name either a command or a url"),
        ('{ command = [""] }', "a command begins with a program"),
        ('{ command = "a b" }', "not a list"),
        ('{ url = "ftp://a" }', "http:// or https://"),
        ('{ url = "http://" }', "http:// or https://"),
        ('{ webhook = "http://a" }', "webhook"),
        ('{ url = "http://a", format = "irc" }', "format"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(load, rows, why):
    with pytest.raises(CallerError) as caught:
        load(f"[jobs]\nnotify = [{rows}]")
    assert why in str(caught.value)
    assert "callboard.toml:3: jobs.notify" in str(caught.value)


def test_limits_of_queues_and_how_long_jobs_are_kept(load):
    settings = load('[jobs]\nkeep = "30d"\n[jobs.queues.slow]\nstarts_per_minute = 6\nconcurrency = 2\n')
    assert settings.keep_age == timedelta(days=30)
    assert settings.queues == {"slow": QueueSettings(starts_per_minute=6, concurrency=2)}
    assert (load("").keep_age, load("").queues) == (None, {})


@pytest.mark.parametrize(
    ("text", "why", "place"),
    [
        ('keep = "30 days"', "'30 days' is no length of time; write a whole number", "jobs"),
        ("keep = 30", "not a text in quotation marks", "jobs.keep"),
        ("queues.slow.starts_per_minute = -1", "at least 0", "jobs.queues.slow.starts_per_minute"),
        ("queues.slow.concurrency = 0", "at least 1", "jobs.queues.slow.concurrency"),
        ("queues.slow.starts = 1", "did you mean 'starts_per_minute'?", "jobs.queues.slow.starts"),
    ],
)
def test_a_limit_that_is_none_is_told_with_its_place(load, text, why, place):
    with pytest.raises(CallerError) as caught:
        load(f"[jobs]\n{text}")
    assert why in str(caught.value)
    assert f": {place}: " in str(caught.value)


def test_the_address_of_the_board_is_one(load):
    assert load('[jobs]\nboard_url = "https://board.example.org"').board_url == "https://board.example.org"
    for url in (
        "board.example.org",
        "javascript:alert(1)",
        "https://",
        "https://a|b>",
        "https://a\\r\\nb",
        "https://ä",
    ):
        with pytest.raises(CallerError, match="board_url begins with"):
            load(f'[jobs]\nboard_url = "{url}"')


def test_no_project_says_who_is_told_not_even_a_trusted_one(load):
    with pytest.raises(CallerError, match="a project cannot configure your jobs"):
        load("", '[[jobs.notify]]\ncommand = ["curl"]')
