from __future__ import annotations

import asyncio
import re
import signal
from io import StringIO
from pathlib import Path

import pytest

from callboard.agent import Transcript
from callboard.cli.display import Display
from callboard.core import (
    AssistantCanister,
    InvocationCanister,
    ReasoningPiece,
    ReplyEnded,
    ReplyFailed,
    ReplyStarted,
    ResultCanister,
    ResultReady,
    RoundStarted,
    RunEnded,
    TextPiece,
    Usage,
    UserCanister,
    decode_event,
)
from callboard.errors import CallerError, NoSuchModel
from callboard.testing import FakeBackend, Html, Raw, Silence, StatusReply

CALL = 'I shall multiply.\n```json\n{"name": "multiply", "arguments": {"a": 6, "b": 7}}\n```'


def transcript_of(data):
    """The transcript of the one conversation."""
    (path,) = (data / "conversations").glob("*/messages.jsonl")
    return Transcript(path)


def test_the_answer_is_on_standard_output_and_the_rest_beside_it(ask, toolbox, data):
    result, backend = ask("6 times 7?", "--tools", toolbox, replies=[CALL, "It is 42."])
    assert result.exit_code == 0
    assert result.stdout == "I shall multiply.\nIt is 42.\n"
    assert result.stderr == "-> multiply(a=6, b=7)\n<- 42\n"
    backend.assert_complete()
    canisters = transcript_of(data).read()
    assert [type(each) for each in canisters] == [
        UserCanister,
        AssistantCanister,
        InvocationCanister,
        ResultCanister,
        AssistantCanister,
    ]
    assert (canisters[0].text, canisters[3].text, canisters[4].text) == ("6 times 7?", "42", "It is 42.")


@pytest.mark.parametrize(
    ("given", "effort"), [("--effort=none", "none"), ("", "high"), ("CALLBOARD_EFFORT=", "low"), ("--effort=much", "")]
)
def test_an_effort_comes_from_the_option_the_environment_or_the_settings(ask, tmp_path, monkeypatch, given, effort):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "callboard").mkdir()
    (tmp_path / "callboard/callboard.toml").write_text('effort = "low"\n', "utf-8")
    monkeypatch.setenv("CALLBOARD_EFFORT", "" if given == "CALLBOARD_EFFORT=" else "high")
    result, backend = ask("Hi", *([given] if given.startswith("--") else []), replies=["Hello."])
    if not effort:
        assert "--effort: no effort 'much'; there are" in str(result.exception)
        return
    assert result.exit_code == 0
    assert backend.requests[-1].body["reasoning_effort"] == effort


async def test_a_model_that_is_silent_is_reported_until_it_speaks(monkeypatch):
    monkeypatch.setattr("callboard.cli.display.SILENCE", 0.0)
    monkeypatch.setattr("callboard.cli.display._POLL_SECONDS", 0.0)
    out, err = StringIO(), StringIO()
    display = Display(out, err, verbose=False, color=False)
    async with display.report_silence():
        display.show(RoundStarted(1))
        for _ in range(10):
            await asyncio.sleep(0)
        reported = err.getvalue()
        display.show(TextPiece("Half a"))  # nothing may come between the pieces of a line
        for _ in range(10):
            await asyncio.sleep(0)
        display.show(TextPiece(" line"))
        display.show(ReplyEnded("stop"))
        for _ in range(10):
            await asyncio.sleep(0)
    assert (reported[:27], err.getvalue()) == ("waiting for the model: 0 s\n", reported)
    assert out.getvalue() == "Half a line\n"


def test_arguments_that_do_not_fit_are_shown_once(ask, toolbox):
    wrong = CALL.replace("6", '"six"')
    result, _ = ask("6 times 7?", "--tools", toolbox, replies=[wrong, "It is 42."])
    assert result.stderr.count("expected a valid integer") == 1
    assert "note (alert)" not in result.stderr


@pytest.mark.parametrize("mode", ["native", "structured", "validated", "parsed"])
def test_modes(ask, toolbox, mode):
    call = '{"action": {"tool": "multiply", "arguments": {"a": 6, "b": 7}}}' if mode == "structured" else CALL
    answer = '{"action": {"answer": "It is 42."}}' if mode == "structured" else "It is 42."
    result, backend = ask("6 times 7?", "--tools", toolbox, "--mode", mode, replies=[call, answer])
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "It is 42.")
    assert ("tools" in backend.requests[0].body) == (mode == "native")


def test_json_is_one_event_a_line(ask, toolbox):
    result, _ = ask("6 times 7?", "--tools", toolbox, "--json", replies=[CALL, "It is 42."])
    assert (result.exit_code, result.stderr) == (0, "")
    events = [decode_event(line) for line in result.stdout.splitlines()]
    assert [event.number for event in events if isinstance(event, RoundStarted)] == [1, 2]
    assert [event.canister.text for event in events if isinstance(event, ResultReady)] == ["42"]
    assert "".join([event.text for event in events if isinstance(event, TextPiece)]).endswith("It is 42.")
    assert isinstance(events[-1], RunEnded)
    assert (events[-1].state, events[-1].output) == ("completed", "It is 42.")


def test_verbose_shows_what_else_happens(ask, toolbox, data):
    calling = [
        ReplyStarted(), ReasoningPiece("Let me think."), TextPiece(CALL), Usage(12, 3), ReplyEnded("stop"),
    ]  # fmt: skip
    result, _ = ask("6 times 7?", "--tools", toolbox, "-v", replies=[calling, "It is 42."])
    assert result.stdout == "I shall multiply.\nIt is 42.\n"
    shown = result.stderr
    assert shown.index("round 1\n") < shown.index("Let me think.") < shown.index("-> multiply(a=6, b=7)\n")
    assert shown.index("<- 42\n") < shown.index("round 2\n") < shown.index("13 tokens in, 6 out\n")
    assert shown.endswith(f"the transcript is in {transcript_of(data).path}\n")


def test_a_prompt_from_standard_input(ask):
    result, backend = ask("-", replies=["Hello."], input="Say\nhello.\n")
    assert result.stdout == "Hello.\n"
    assert backend.requests[0].body["messages"] == [{"role": "user", "content": "Say\nhello.\n"}]


@pytest.mark.parametrize(("prompt", "piped"), [("-", b"caf\xe9"), ("caf\udce9", b"")])
def test_a_prompt_that_is_no_text(ask, data, prompt, piped):
    result, backend = ask(prompt, replies=["Hello."], input=piped)
    assert (result.exit_code, result.stdout) == (0, "Hello.\n")
    assert backend.requests[0].body["messages"][0]["content"] == "caf\ufffd"
    assert transcript_of(data).read()[0].text == "caf\ufffd"


def test_a_whole_number_of_lines_is_left_as_it_is(ask):
    assert ask("Hi", replies=["Hello.\n"])[0].stdout == "Hello.\n"


@pytest.mark.parametrize(
    ("replies", "rounds", "outcome"),
    [
        ([Html()], 20, (1, "the provider failed: the answer is no reply but text/html")),
        ([StatusReply(401, {"error": {"message": "no such key"}})], 20, (1, "the provider failed: no such key")),
        ([Raw(['{"error": {"message": "out of memory"}}'])], 20, (1, "the provider failed: out of memory")),
        ([[TextPiece("Hel"), ReplyEnded("length")]], 20, (3, "incomplete: the reply reached its length limit")),
        ([CALL, "Let me see."], 2, (3, "incomplete: no answer within 1 rounds")),
        ([CALL, CALL], 2, (3, "incomplete: ")),
    ],
)
def test_exit_codes(ask, toolbox, data, replies, rounds, outcome):  # noqa: PLR0917 - half of them are fixtures
    result, _ = ask("6 times 7?", "--tools", toolbox, "--max-rounds", str(rounds), replies=replies)
    code, message = outcome
    assert result.exit_code == code
    assert message in result.stderr
    # The last line says where everything is kept.
    assert str(transcript_of(data).path) in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("reply", "model", "path", "hint"),
    [
        (
            StatusReply(401, {"error": {"message": "no"}}),
            "fake-model",
            "/v1",
            "is its key in CALLBOARD_API_KEY, or in api_key=?",
        ),
        (StatusReply(401, {"error": {"message": "no"}}), "openai:gpt-4o", "/v1", "is the key in OPENAI_API_KEY right?"),
        (
            StatusReply(404, {"error": {"message": "no"}}),
            "gpt-9",
            "/v1",
            "no model gpt-9 is there; there are fake-model",
        ),
        (StatusReply(404, {"error": {"message": "no"}}), "m", "", "did you forget /v1 at the end of its base URL?"),
        (Html(404), "fake-model", "/v1", "is it the URL of an API, without the path of a request?"),
        (StatusReply(400, {"error": {"message": "no"}}), "fake-model", "/v1", ""),
    ],
)
def test_a_failure_says_who_answered_and_what_helps(ask, monkeypatch, reply, model, path, hint):  # noqa: PLR0917
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    result, backend = ask("Hi", "--model", model, replies=[reply], path=path)
    line, _ = result.stderr.splitlines()
    assert line.startswith("callboard: the provider failed: ")
    assert f" ({backend.url.removesuffix('/v1')}{path}/chat/completions answered {reply.code})" in line
    assert line.endswith(f"); {hint}" if hint else ")")


def test_as_json_a_failure_is_an_event(ask):
    result, _ = ask("Hi", "--json", replies=[Html()])
    assert result.exit_code == 1
    *_, failed, ended = [decode_event(line) for line in result.stdout.splitlines()]
    assert isinstance(failed, ReplyFailed)
    assert (failed.code, failed.excerpt[:15]) == ("malformed", "<!doctype html>")
    assert ended.state == "failed"


def test_with_verbose_a_failure_shows_what_was_sent(ask):
    result, _ = ask("Hi", "--verbose", replies=[Html(body="<h1>Sign in</h1>")])
    assert "   <h1>Sign in</h1>\n" in result.stderr


def test_retries_are_told_of(ask):
    result, _ = ask("Hi", replies=[StatusReply(429, headers={"retry-after-ms": "1"}), "Hello."])
    assert (result.exit_code, result.stdout) == (0, "Hello.\n")
    assert result.stderr == "attempt 1: the server answered 429; trying again in 0.0 s\n"


def test_what_tools_and_models_say_cannot_command_the_terminal(ask, toolbox):
    call = '```json\n{"name": "shout", "arguments": {"text": "\\u001b[2J' + "x" * 1000 + '"}}\n```'
    result, _ = ask("Go.", "--tools", toolbox, replies=[call, "ok"])
    assert "\x1b" not in result.stderr
    called, returned = result.stderr.splitlines()
    assert called.startswith("-> shout(text=")
    assert returned.startswith("<- [2JXXX")
    assert max(map(len, (called, returned))) < 200


def test_a_tool_that_wants_approval_is_denied_where_nobody_is(ask, toolbox):
    call = '```json\n{"name": "deploy", "arguments": {}}\n```'
    result, _ = ask("Deploy.", "--tools", toolbox, replies=[call, "Not allowed."])
    assert (result.exit_code, result.stdout) == (0, "Not allowed.\n")
    lines = result.stderr.splitlines()
    assert re.fullmatch(r"deploy: Denied by nobody \(terminal\) at [-0-9]{10} [:0-9]{8} UTC", lines.pop(4))
    assert lines == [
        "-> deploy()",
        "deploy always needs approval",
        "Run deploy? {}",
        "No terminal to confirm in: denied",
        "<- Error: deploy may not run: the answer was no",
    ]


@pytest.mark.parametrize(("key", "header"), [("secret", "Bearer secret"), ("", None)])
def test_the_key_of_a_base_url(ask, monkeypatch, key, header):
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    monkeypatch.setenv("CALLBOARD_API_KEY", key)
    _, backend = ask("Hi", replies=["Hello."])
    assert backend.requests[0].headers.get("authorization") == header


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--model", "mystery"], CallerError, "mystery: no provider is named"),
        (["--model", "openai:gpt-4o"], CallerError, "openai:gpt-4o: it wants an API key; set OPENAI_API_KEY"),
        (["--model", "local:nobody"], NoSuchModel, "nobody"),
        (["--model", "local:nowhere.gguf"], NoSuchModel, "nowhere.gguf: no such file"),
        (["--model", "m", "--base-url", "http://127.0.0.1:1", "--mode", "magic"], CallerError, "no mode 'magic'"),
        (["--model", "m", "--base-url", "http://127.0.0.1:1", "--tools", "nowhere.py"], CallerError, "nowhere.py: no"),
        (["--model", "m", "--base-url", "ftp://127.0.0.1"], CallerError, "not a URL that a provider can be asked at"),
    ],
)
def test_what_a_person_gets_wrong(invoke, arguments, error, message):
    result = invoke("run", *arguments, "Hi")
    assert type(result.exception) is error
    assert message in str(result.exception)
    assert result.stdout == ""


def test_a_wrong_option_is_wrong_usage(invoke):
    assert invoke("run", "Hi", "--max-rounds", "0").exit_code == 2
    assert invoke("run").exit_code == 2


WAITING = """
import threading
from callboard import tool

@tool
def wait() -> None:
    "Wait for ever."
    print("waiting", flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize("while_", ["it answers", "a tool runs"])
async def test_ctrl_c_cancels_and_keeps_the_transcript(callboard, tmp_path, while_):
    (tmp_path / "waiting.py").write_text(WAITING)
    replies, sign = {
        "it answers": ([Silence(after=[ReplyStarted(), TextPiece("Hel")])], b"Hel"),
        "a tool runs": (['```json\n{"name": "wait", "arguments": {}}\n```'], b"waiting\n"),
    }[while_]

    async with FakeBackend(replies) as backend:
        options = ("--tools", str(tmp_path / "waiting.py"), "--model", "fake-model", "--base-url", backend.url)
        child = await asyncio.create_subprocess_exec(
            *callboard.command,
            "run",
            *options,
            "Go.",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stream = child.stdout if while_ == "it answers" else child.stderr  # where a tool's own words go
        await stream.readuntil(sign)
        child.send_signal(signal.SIGINT)
        out, err = await child.communicate()
        if while_ == "it answers":
            await backend.disconnected.wait()
    code, err = child.returncode, err.decode()
    assert (code, out.strip()) == (130, b"")
    path = re.fullmatch(r"cancelled; the transcript is kept in (.*)", err.splitlines()[-1])[1]
    assert "Traceback" not in err
    first, *said = Transcript(Path(path)).read()
    assert first.text == "Go."
    if while_ == "it answers":
        assert said == [AssistantCanister("Hel")]
    else:
        assert [each.text for each in said[1:]] == ["Error: the run was cancelled"]
        assert said[0].name == "wait"


def test_the_next_model_of_a_chain_is_asked_where_one_fails(ask):
    result, backend = ask("Hi", "--model", "first, second", replies=[StatusReply(401), "Hello."])
    assert result.stdout == "Hello.\n"
    assert "first failed" in result.stderr
    assert [request.body["model"] for request in backend.requests] == ["first", "second"]


def test_one_round_is_one_reply_without_tools(ask, toolbox):
    result, backend = ask("6 times 7?", "--tools", toolbox, "--max-rounds", "1", replies=["42."])
    assert (result.exit_code, result.stdout, len(backend.requests)) == (0, "42.\n", 1)
