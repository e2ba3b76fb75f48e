"""A job from a database that others can write to decides nothing about the worker's host."""

import asyncio
import os
from types import SimpleNamespace

import pytest

from callboard.cli.run_kind import RunFlags, submit_run
from callboard.coding.agents.job_request import JobRequest
from callboard.configuration import load_settings
from callboard.core import InvocationCanister
from callboard.errors import CallerError
from callboard.jobs.coding_kind import coding_kinds, host_queue
from callboard.jobs.segment import SegmentRunner
from callboard.jobs.shared_database import check_directory, check_options, check_request
from callboard.jobs.store import DurableStore

OPTIONS = [
    ("tools", ["tools.py"], "--tools"),
    ("ensembles", ["ensembles"], "--ensembles"),
    ("mcp", ["mcp.json"], "--mcp"),
    ("base_url", "http://collector.example.org/v1", "--base-url"),
    ("push", True, "--push"),
    ("open_pull_request", True, "--pr"),
    ("without_sandbox", True, "--no-sandbox"),
    ("allow_weaker_sandbox", True, "--allow-weaker-sandbox"),
    ("model", "command:sh -c ls", "--model command:sh -c ls"),
    ("model", "openai:none, command:sh -c ls", "--model openai:none, command:sh -c ls"),
    ("model", "local:/home/me/.ssh/id_rsa", "--model local:/home/me/.ssh/id_rsa"),
    ("model", "openai:none,local:weights.gguf", "--model openai:none,local:weights.gguf"),
]
SHARED = SimpleNamespace(is_sqlite=False)


@pytest.fixture(autouse=True)
def settings(tmp_path, monkeypatch):
    """The file of the worker's user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "config" / "callboard" / "callboard.toml"
    file.parent.mkdir(parents=True)
    return file


@pytest.mark.parametrize(("name", "value", "option"), OPTIONS)
def test_an_option_is_refused_unless_the_user_trusts_the_database(name, value, option, settings):
    options = {name: value}
    check_options(options, SimpleNamespace(is_sqlite=True))
    with pytest.raises(CallerError, match="trust_database = true") as refused:
        check_options(options, SHARED)
    assert refused.value.path == option
    settings.write_text("[jobs]\ntrust_database = true\n")
    check_options(options, SHARED)


def test_options_that_are_not_about_the_host_are_accepted():
    check_options({"model": "openai:gpt-4o", "description": "Make add work", "rounds": 3, "tools": None}, SHARED)
    check_options({"model": "local:qwen2.5-coder-0.5b"}, SHARED)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home directory of the worker's user, with keys and two projects."""
    home = tmp_path / "home" / "me"
    monkeypatch.setenv("HOME", str(home))
    for each in (".ssh/old", ".aws", ".gnupg", ".config/gcloud", ".local/share/keyrings", "code/shop", "private"):
        (home / each).mkdir(parents=True)
    (home / "code" / "keys").symlink_to(home / ".ssh")
    (home / "code" / "other").symlink_to(home / "private")
    return home


@pytest.mark.parametrize(
    "directory",
    [
        *("", ".ssh", ".ssh/old", ".aws", ".gnupg", ".config", ".config/gcloud", ".local/share", ".local"),
        *("..", "../..", "code/../.ssh", "code/keys", "code/keys/old", "code/shop/../..", "../me", "/", ".ssh/none"),
    ],
)
@pytest.mark.parametrize("database", [SHARED, SimpleNamespace(is_sqlite=True)], ids=["shared", "own"])
def test_no_job_works_in_a_directory_of_keys(home, settings, directory, database):
    settings.write_text('[jobs]\ntrust_database = true\ndirectories = ["/", "~"]\n')
    with pytest.raises(CallerError, match="no job may work in a home directory or a directory of keys"):
        check_directory(home / directory, database)


@pytest.mark.parametrize(
    ("listed", "directory", "is_taken"),
    [
        ("[]", "code/shop", False),
        ('["~/code"]', "code/shop", True),
        ('["~/code/"]', "code", True),
        ('["~"]', "private", True),
        ('["~/code/shop"]', "code", False),
        ('["~/cod"]', "code", False),
        ('["~/code"]', "code/../private", False),
        ('["~/code"]', "code/other", False),
        ('["~/code", "~/private"]', "code/other", True),
        ('["~/code/other"]', "private", True),
    ],
)
def test_a_job_of_somebody_else_works_in_the_directories_that_the_user_lists(
    home, settings, listed, directory, is_taken
):
    check_directory(home / directory, SimpleNamespace(is_sqlite=True))
    settings.write_text(f"[jobs]\ndirectories = {listed}\n")
    if is_taken:
        check_directory(home / directory, SHARED)
        return
    with pytest.raises(CallerError, match=r"directories = \[...\] in \[jobs\]"):
        check_directory(home / directory, SHARED)
    settings.write_text("[jobs]\ntrust_database = true\n")
    check_directory(home / directory, SHARED)


def test_a_directory_in_the_settings_is_absolute(settings):
    settings.write_text('[jobs]\ndirectories = ["code"]\n')
    with pytest.raises(CallerError, match="a directory begins with / or ~"):
        check_directory("/srv", SHARED)


@pytest.mark.parametrize(
    ("own", "asked", "is_taken"),
    [("", "full", True), ("edit", "edit", True), ("edit", "", True), ("edit", "full", False)],
)
def test_a_job_of_somebody_else_may_do_no_more_than_the_settings_say(tmp_path, settings, own, asked, is_taken):
    lines = f'[coding.modes.build]\naccess = "{own}"\n' if own else ""
    settings.write_text(f'[jobs]\ndirectories = ["{tmp_path}"]\n{lines}')
    loaded = load_settings({}, tmp_path, os.environ)
    request = JobRequest(kind="build", directory=tmp_path, settings=loaded, description="x", access=asked)
    check_request(request, SimpleNamespace(is_sqlite=True))
    if is_taken:
        check_request(request, SHARED)
    else:
        with pytest.raises(CallerError, match="--access full: a job from a database"):
            check_request(request, SHARED)


@pytest.mark.parametrize(
    "case",
    [
        (True, {"without_sandbox": True}, "--no-sandbox: a job from a database", False),
        (True, {"push": True}, "--push: a job from a database", True),
        (False, {}, "may not work in this directory", False),
        (False, {}, "may not work in this directory", True),
    ],
)
def test_a_coding_job_of_somebody_else_fails_and_says_why(store, tmp_path, settings, case):
    """On SQLite the job runs and the model is opened. An interrupted call shows nothing of the directory."""
    opened = []
    listed, options, error, has_open_call = case
    settings.write_text(f'[jobs]\ndirectories = ["{tmp_path if listed else tmp_path / "other"}"]\n')

    def open_model(settings):
        opened.append(settings)
        raise CallerError("no model here")

    async def scenario():
        job = await store.create(
            "triage",
            description="Look",
            directory=str(tmp_path),
            queue=host_queue(),
            input={"description": "Look", **options},
        )
        if has_open_call:
            call = InvocationCanister(identifier="c", name="bash", arguments={})
            claim = await store.claim(job.id, job.segment, "dead")
            await claim.append([call], rounds=1)
            await claim.begin_calls([call])
        runner = SegmentRunner(store, coding_kinds(store, open_model, tmp_path / "jobs"))
        await runner(job.id, job.segment, SimpleNamespace(executor="x", stopping=asyncio.Event()))
        return await store.get(job.id)

    job = asyncio.run(scenario())
    assert job.state == "failed"
    assert (error in job.error, len(opened)) == ((False, 1) if store.database.is_sqlite else (True, 0))
    if not store.database.is_sqlite:
        assert len(asyncio.run(store.read_entries(job.id))) == has_open_call * (1 + listed)


def test_a_run_with_tools_is_not_queued_where_others_write():
    with pytest.raises(CallerError, match="--tools: a job from a database"):
        asyncio.run(submit_run(DurableStore(SHARED), "Hi", RunFlags(tools=["tools.py"]), ""))
