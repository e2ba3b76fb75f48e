"""`callboard.toml`, as a person uses it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from callboard.cli import app
from callboard.testing import FakeBackend, StatusReply

CALL = '```json\n{"name": "multiply", "arguments": {"a": 6}}\n```'


@pytest.fixture
def run(own):
    """Runs `callboard run` with this file of the user; gives the outcome and the backend."""

    def run(text, *arguments, replies):
        async def scenario():
            async with FakeBackend(replies) as backend:
                own.write_text(text.replace("URL", backend.url))
                return await asyncio.to_thread(CliRunner().invoke, app, ["run", *arguments]), backend

        return asyncio.run(scenario())

    return run


def test_settings_are_the_defaults_of_a_run(run, toolbox):
    text = f"""
        model = "mine"
        base_url = "URL"
        mode = "validated"
        max_rounds = 2
        tools = ["{toolbox}"]
        instructions = "Be brief."
        [profiles.mine]
        max_tokens = 77
    """
    result, backend = run(text, "6 times 7?", replies=[CALL, "42"])
    assert result.exit_code == 3
    assert "<- 42" in result.stderr
    assert "incomplete: no answer within 1 rounds" in result.stderr
    body = backend.requests[0].body
    assert body["model"] == "mine"
    assert 77 in (body.get("max_tokens"), body.get("max_completion_tokens"))
    assert "tools" not in body
    assert body["messages"][0]["content"].startswith("Be brief.")


def test_a_tool_that_settings_deny_is_not_shown_to_the_model(run, toolbox):
    text = f'model = "mine"\nbase_url = "URL"\ntools = ["{toolbox}"]\n[permissions]\ndeny = ["multiply"]'
    result, backend = run(text, "6 times 7?", "--mode", "validated", replies=["I cannot."])
    assert (result.exit_code, result.stdout) == (0, "I cannot.\n")
    assert "multiply" not in str(backend.requests[0].body)


def test_flags_and_the_environment_win(run, toolbox, monkeypatch):
    monkeypatch.setenv("CALLBOARD_MODEL", "from-the-environment")
    monkeypatch.setenv("CALLBOARD_MODE", "native")
    text = 'model = "mine"\nbase_url = "URL"\nmode = "validated"\ntools = ["nowhere.py"]'
    result, backend = run(text, "Hi", "--mode", "parsed", "--tools", toolbox, replies=["Hello."])
    assert (result.exit_code, result.stdout) == (0, "Hello.\n")
    assert backend.requests[0].body["model"] == "from-the-environment"
    assert "tools" not in backend.requests[0].body


def test_what_a_rule_allows_is_not_asked(run, toolbox):
    call = '```json\n{"name": "deploy", "arguments": {}}\n```'
    text = f'base_url = "URL"\nmodel = "m"\ntools = ["{toolbox}"]\n[permissions]\nallow = ["deploy"]'
    result, _ = run(text, "Deploy.", replies=[call, "Done."])
    assert "<- deployed\n" in result.stderr


def test_tools_list_takes_them_from_the_settings(invoke, own, toolbox):
    own.write_text(f'tools = ["{toolbox}"]\nensembles = ["io"]')
    names = [each["name"] for each in json.loads(invoke("tools", "list", "--json").stdout)]
    assert names == ["multiply", "deploy", "shout", "read_file", "write_file", "list_directory"]
    only = [each["name"] for each in json.loads(invoke("tools", "list", "--json", "--ensembles", "io").stdout)]
    assert only == ["read_file", "write_file", "list_directory"]


@pytest.mark.parametrize("model", [" command:sh -c 'id > {}'", "m,command:sh -c 'id > {}'", "\tcommand:touch {}"])
def test_a_cloned_repositorys_file_runs_no_program_and_sends_no_prompt(typed, own, tmp_path, monkeypatch, model):
    monkeypatch.setattr("callboard.providers.transport.backoff", lambda *_: 0.0)
    pwned = tmp_path / "pwned"
    own.write_text('model = "m"\nbase_url = "http://127.0.0.1:1"\n')
    (tmp_path / "callboard.toml").write_text(
        f"model = {json.dumps(model.format(pwned))}\nbase_url = 'http://127.0.0.1:2'"
    )
    result = typed("run", "Hi", cwd=tmp_path)
    assert result.returncode == 1
    assert "127.0.0.1:1" in result.stderr
    assert not pwned.exists()
    assert result.stderr.splitlines()[0] == (
        f"callboard: {tmp_path}/callboard.toml: without effect, because you do not trust this project: model, base_url; "
        f"to trust it, run: callboard trust {tmp_path}"
    )
    assert result.stderr.count("do not trust") == 1


@pytest.mark.usefixtures("own")
def test_a_projects_file_runs_nothing_unasked(invoke, tmp_path, toolbox):
    (tmp_path / "callboard.toml").write_text(f'tools = ["{toolbox}"]\nensembles = ["io"]')
    result = invoke("tools", "list")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "you do not trust this project: tools, ensembles;" in result.stderr
    assert f"callboard trust {tmp_path}" in result.stderr


@pytest.mark.parametrize(
    "text", ['tools = ["planted"]', 'ensembles = ["coding"]', 'ensembles = ["ensembles"]', 'ensembles = ["io"]']
)
async def test_no_module_of_the_current_directory_is_imported_for_the_users_own_file(own, tmp_path, text):
    """It holds in every directory, also in one that somebody else has filled."""
    (own.parent / "ensembles").mkdir()
    (own.parent / "ensembles" / "mine.toml").write_text('[ensemble]\nname = "mine"\nmodule = "planted"\n')
    repository = tmp_path / "repository"
    repository.mkdir()
    for name in ("planted", "brotli", "brotlicffi", "aiodns", "orjson"):
        (repository / f"{name}.py").write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')\n")
    # As the console script does, Python does not look into the current directory by itself.
    command = [sys.executable, "-P", "-c", "from callboard.cli import main; main()", "run", "Hi"]

    async with FakeBackend([StatusReply(400)]) as backend:
        own.write_text(f'model = "m"\nbase_url = "{backend.url}"\n{text}\n')
        outcome = await asyncio.to_thread(subprocess.run, command, cwd=repository, capture_output=True, check=False)
    assert outcome.returncode == 1
    assert not (tmp_path / "pwned").exists()


def test_modules_that_a_trusted_project_names_are_found_beside_its_file(invoke, own, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / "named_by_test.py").write_text(
        "from callboard import tool\n\n@tool\ndef greet() -> str:\n    'Greet.'\n    return 'x'\n"
    )
    (project / "callboard.toml").write_text('tools = ["named_by_test"]')
    own.write_text(f'trusted = ["{project}"]')
    monkeypatch.chdir(project / "src")
    assert [each["name"] for each in json.loads(invoke("tools", "list", "--json").stdout)] == ["greet"]


def test_a_mistake_is_one_line(typed, own, tmp_path):
    own.write_text("modle = 'x'")
    result = typed("run", "Hi", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"callboard: {own}:1: modle: unknown key; did you mean 'mode' or 'model' or 'dialect'?\n"


def test_help_tells_the_defaults_of_the_settings(invoke):
    shown = " ".join(invoke("run", "--help").stdout.replace("│", " ").split())
    assert "0.5b" in shown
