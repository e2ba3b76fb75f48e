"""What a person sees of `callboard doctor`; what it finds is in tests/servers/gateway/doctor/test_run.py."""

import asyncio
import io
import json
import re
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from callboard.cli import app, interrupt
from callboard.cli.doctor import _Progress, _write_facts
from callboard.core import InvocationEnded, InvocationStarted, ReplyEnded, ReplyStarted, Usage
from callboard.errors import CallerError
from callboard.providers.local.memory import Memory
from callboard.sandbox import find_sandbox
from callboard.sandbox.detect import Candidate
from callboard.sandbox.landlock import Landlock
from callboard.servers.gateway.doctor.run import DoctorReport, ReportRow
from callboard.testing import FakeBackend, StatusReply

ARGUMENTS = {
    "read_file": {"path": "a"},
    "exec_command": {"cmd": "ls"},
    "functions__exec": {"input": "x"},
    "Bash": {"command": "ls"},
    "run_shell_command": {"command": "ls"},
}


def model(body):
    """It calls until it sees a result, and takes one system message."""
    if any(message["role"] == "system" for message in body["messages"][1:]):
        return StatusReply(400, {"error": {"message": "one system message, please"}})
    names = [tool["function"]["name"] for tool in body.get("tools", [])]
    found = [name for name in ARGUMENTS if name in names]
    if not found or body["messages"][-1]["role"] == "tool":
        return "ready"
    name, arguments = found[0], ARGUMENTS[found[0]]
    call = [InvocationStarted(0, "c", name), InvocationEnded(0, "c", name, arguments, json.dumps(arguments))]
    return [ReplyStarted(), *call, Usage(input=1, output=1), ReplyEnded("invocations")]


def only_in_prompt(body):
    """It calls only tools that its prompt describes, and then in text."""
    last = json.dumps(body["messages"][-1])
    said = json.dumps(body["messages"])
    found = [name for name in ARGUMENTS if f"{name}" in said and "tool_call" in said]
    if body.get("tools") or not found or "README.md" in last:
        return "ready"
    return f"<tool_call>{json.dumps({'name': found[0], 'arguments': ARGUMENTS[found[0]]})}</tool_call>"


@pytest.fixture
def examine():
    def examine(*arguments, replies=model):
        async def scenario():
            async with FakeBackend(replies) as backend:
                given = ["doctor", "--backend", backend.url, *arguments]
                return await asyncio.to_thread(CliRunner().invoke, app, given), backend.url

        return asyncio.run(scenario())

    return examine


def test_a_fault_is_told_with_what_helps(examine):
    result, url = examine("--dialect", "hermes", replies=only_in_prompt)
    assert result.exit_code == 1
    assert "Qwen Code                  no        the model does not call its tools\n" in result.stdout
    assert "                                     helps: --mode validated\n" in result.stdout
    assert f"\ncallboard serve --backend {url} --mode validated\n" in result.stdout
    assert "6/14 Qwen Code\n" in result.stderr


def test_with_what_helps_every_client_can_work(examine):
    result, _ = examine("--profile", "merge_system_messages=true")
    assert result.exit_code == 0, result.output
    assert "Codex                      yes       native\n" in result.stdout
    assert "lost: client_metadata" in result.stdout
    assert "every client can work with fake-model" in result.stdout


def test_json(examine):
    result, _ = examine("--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["works"], told["flags"]) == (1, False, [])
    assert {row["name"]: row["state"] for row in told["clients"]} == {
        "Codex": "no",
        "Codex, newest models": "no",
        "Claude Code": "no",
        "Gemini CLI": "yes",
        "Qwen Code": "yes",
    }


def test_quick_asks_only_what_the_clients_ask(examine):
    result, _ = examine("--profile", "merge_system_messages=true", "--quick")
    assert result.exit_code == 0, result.output
    assert [line[:26].rstrip() for line in result.stdout.splitlines() if line[:1].isalpha()] == [
        "answers",
        "Codex",
        "Codex, newest models",
        "Claude Code",
        "Gemini CLI",
        "Qwen Code",
        "every client can work with",
    ]
    *_, last, took = result.stderr.splitlines()
    assert last == "6/6 Qwen Code"
    assert re.fullmatch(r"took \d+ s", took)


class Screen(io.StringIO):
    """A terminal that obeys what erases a line."""

    encoding = "utf-8"

    def isatty(self):
        return True

    def shown(self):
        lines, at = [""], 0
        for piece in re.findall(r"\x1b\[[\d?;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", self.getvalue()):
            if piece == "\n":
                at += 1
                lines += [""] * (at == len(lines))
            elif piece.endswith("A") and piece.startswith("\x1b"):
                at -= 1
            elif piece == "\x1b[2K":
                lines[at] = ""
            elif piece[0] not in "\x1b\r":
                lines[at] += piece
        return [line.rstrip() for line in lines if line.strip()]


def test_on_a_terminal_only_the_rows_stay(monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with _Progress(quiet=False) as progress:
        for name in ("answers", "streams"):
            progress.start_step(f"1/17 {name}")
            progress.end_step(ReportRow(name, "yes", ""))
    assert "1/17 streams" in screen.getvalue()
    assert "0:00:0" in screen.getvalue()
    assert screen.shown()[:-1] == ["answers                    yes", "streams                    yes"]


def test_a_backend_that_does_not_answer(examine):
    result, _ = examine(replies=[])
    assert result.exit_code == 1
    assert "the backend does not answer" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--backend", "llama"], "not a URL"),
        (["--backend", "http://127.0.0.1:9/v1"], "--model NAME"),
        (["--backend", "http://127.0.0.1:9/v1", "--mode", "fast"], "no mode 'fast'"),
    ],
)
def test_what_cannot_be(arguments, said, invoke):
    result = invoke("doctor", *arguments)
    assert isinstance(result.exception, CallerError), result.exception
    assert said in str(result.exception)


def test_without_a_backend_a_model_for_this_machine_is_recommended(invoke, monkeypatch):
    monkeypatch.setattr("callboard.cli.doctor.read_memory", lambda: Memory(16 << 30, 13 << 30))
    lines = invoke("doctor").stdout.splitlines()
    assert lines[0] == "no backend was named; this machine: 14.0 of 17.2 GB of memory are free"
    commands = [
        "callboard models pull hf:unsloth/Qwen3.5-9B-GGUF/Qwen3.5-9B-Q4_K_M.gguf",
        "callboard launch codex --local Qwen3.5-9B-Q4_K_M",
    ]
    assert [line.strip() for line in lines[-2:]] == commands
    assert json.loads(invoke("doctor", "--json").stdout)["commands"] == commands


@pytest.fixture
def sandboxes(monkeypatch):
    """The machine has these."""

    def have(**sandboxes):
        async def candidates():
            for label, reason in (("bubblewrap (system)", "is not installed"), ("landlock", "the kernel has none")):
                made = sandboxes.get(label.partition(" ")[0])
                yield Candidate(label=label, sandbox=made, reason="" if made else reason)

        monkeypatch.setattr("callboard.sandbox.detect.try_candidates", candidates)

    return have


def test_doctor_says_which_sandbox_is_used_why_and_what_it_does_not_hold(sandboxes):
    holding = SimpleNamespace(open=(), visible=("other processes are visible",))
    sandboxes(landlock=holding)
    result = CliRunner().invoke(app, ["doctor", "--sandbox"])
    assert result.exit_code == 0, result.output
    first, second, *_ = result.output.splitlines()
    assert first.split(maxsplit=3) == ["bubblewrap", "(system)", "unavailable", "is not installed"]
    assert second.split()[:2] == ["landlock", "used"]
    assert "does not hide: other processes are visible" in result.output
    assert "commands run in landlock: bubblewrap (system) cannot be had" in result.output


def test_doctor_fails_where_jobs_run_no_commands_and_says_what_landlock_leaves_open(sandboxes):
    sandboxes(landlock=Landlock(5))
    result = CliRunner().invoke(app, ["doctor", "--sandbox"])
    assert result.exit_code == 1
    assert "does not hold: permissions, groups and times of all your files can be set" in result.output
    assert "does not hold: signals can be sent" in result.output
    assert "jobs run no commands without --allow-weaker-sandbox; a chat runs them in landlock" in result.output
    assert "helps: apt install bubblewrap" in result.output
    sandboxes()
    result = CliRunner().invoke(app, ["doctor", "--sandbox", "--json"])
    assert result.exit_code == 1
    told = json.loads(result.output)
    assert (told["used"], told["attended"], told["unattended"]) == ("", "", False)
    assert [row["reason"] for row in told["sandboxes"]] == ["is not installed", "the kernel has none"]


def test_doctor_of_this_machine():
    """Whatever it has: the sandbox that it says is used is the one that commands get."""
    result = CliRunner().invoke(app, ["doctor", "--sandbox", "--json"])
    told = json.loads(result.output)
    assert result.exit_code == (not told["unattended"])
    if told["used"]:
        assert told["used"].startswith(asyncio.run(find_sandbox(unattended=True)).name)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "callboard/callboard.toml"


def explain(*arguments):
    return CliRunner().invoke(app, ["explain", "fake-model", *arguments]).stdout


def test_what_was_found_out_is_written_shown_and_used(examine, file):
    result, url = examine("--write")
    assert "merge_system_messages, " in result.stderr
    assert result.stderr.endswith(f" of fake-model are in {file}\n")
    assert result.stdout.index("schema enforced") < result.stdout.index("Codex")
    shown = json.loads(explain("--json"))
    fact = shown["facts"]["merge_system_messages"]
    assert (fact["value"], fact["source"]) == (True, "user")
    assert fact["evidence"].startswith("doctor: system messages arrive: a second system message is refused: 400: one")
    assert (shown["examined"]["url"], shown["mode"]) == (url, "native")
    assert f"examined by callboard doctor: {url}" in explain()


def test_a_later_call_says_whether_the_facts_are_of_this_backend(examine, file):
    examine("--write", "--seconds", "60")
    text = file.read_text().replace("http://127.0.0.1:", "http://127.0.0.9:")
    file.write_text(text + "\ncontext_tokens = 5\n")
    result, url = examine("--requests", "20")
    assert re.search(
        rf"the facts in callboard.toml: they were found out of http://127.0.0.9:\d+/v1, and {url}", result.stderr
    )
    assert "not asked" in result.stdout
    result, _ = examine("--write")
    assert json.loads(explain("--json"))["facts"]["context_tokens"]["value"] == 5


def test_facts_that_only_a_person_wrote_stay_and_nothing_else_is_named(examine, file):
    file.parent.mkdir()
    file.write_text("[profiles.fake-model]\nmax_tokens_field = 'max_tokens'\n")

    def renamed(body):
        return (
            StatusReply(400, {"error": {"message": "max_tokens is not supported; use max_completion_tokens"}})
            if "max_tokens" in body
            else model(body)
        )

    result, _ = examine("--write", "--quick", replies=renamed)
    assert result.stderr.endswith("\nyour own max_tokens_field of fake-model stays as it is\n")


@pytest.mark.parametrize(
    ("found", "own", "line"),
    [
        (("mode",), (), "mode of m is in {file}"),
        (("mode", "watch"), (), "mode, watch of m are in {file}"),
        (("mode", "watch"), ("watch",), "mode of m is in {file}; your own watch of m stays as it is"),
        (("mode", "watch"), ("mode", "watch"), "your own mode, watch of m stay as they are"),
    ],
)
def test_what_is_written_is_told_in_a_sentence(file, found, own, line):
    file.parent.mkdir()
    earlier, new = {"mode": "validated", "watch": "hermes"}, {"mode": "native", "watch": "json"}
    file.write_text("\n".join(["[profiles.m]", *[f"{fact} = '{earlier[fact]}'" for fact in own]]))
    facts = {fact: new[fact] for fact in found}
    report = DoctorReport("m", (), (), (), facts=facts, evidence=dict.fromkeys(facts, "it was seen"))
    assert _write_facts(report, "http://127.0.0.1") == line.format(file=file)


def test_an_examination_that_is_stopped_writes_nothing(examine, file, monkeypatch):
    def stop(command, on_cancel):
        command.close()
        on_cancel()
        raise KeyboardInterrupt

    monkeypatch.setattr(interrupt, "run", stop)
    result, _ = examine("--write")
    assert result.exit_code == interrupt.EXIT_CODE
    assert result.stderr.startswith("stopped; nothing was written\n")
    assert not file.exists()


def test_facts_that_were_found_stay_where_a_later_call_gets_no_answer(examine, file):
    def busy(body):
        return StatusReply(429, "slow down") if "response_format" in body else model(body)

    examine("--write")
    before = file.read_text()
    assert "supports_json_schema = false" in before
    examine("--write", replies=busy)
    assert "supports_json_schema = false" in file.read_text()


def test_where_nothing_was_answered_nothing_is_written(examine, file):
    result, _ = examine("--write", replies=lambda body: StatusReply(401, "no key"))
    assert result.stderr.endswith("nothing was written: the answers of fake-model show no facts\n")
    assert not file.exists()


def test_a_mistake_in_the_file_is_told_before_anything_is_asked(examine, file):
    file.parent.mkdir()
    file.write_text("a = [")
    result, _ = examine("--write")
    assert isinstance(result.exception, CallerError)
    assert "answers" not in result.stdout


@pytest.mark.usefixtures("file")
async def test_a_password_in_the_url_is_not_shown():
    async with FakeBackend(only_in_prompt) as backend:
        url = backend.url.replace("http://", "http://ann:secret-word@")
        result = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "--backend", url, "--dialect", "hermes"])
    assert "callboard serve --backend http://127.0.0.1:" in result.stdout
    assert "secret" not in result.output


def test_a_client_that_was_not_asked(examine):
    result, _ = examine("--profile", "merge_system_messages=true", "--quick", "--requests", "4")
    assert result.exit_code == 1
    assert "not every client was checked" in result.stdout
