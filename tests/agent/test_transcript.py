from __future__ import annotations

import asyncio
import stat
from datetime import UTC, datetime

import pytest

from callboard import Agent, core, tool
from callboard.agent import Transcript
from callboard.errors import CallerError
from callboard.testing import Call, ScriptedModel

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONVERSATION = [
    core.SupervisorCanister("Be brief."),
    core.UserCanister("What's the weather in SF?\nAnd why? \u2028 ö", timestamp=NOW),
    core.DocumentCanister("a page", title="Weather"),
    core.AssistantCanister((core.ReasoningContent("hm", "opaque", "model"),)),
    core.InvocationCanister(
        "call_1", "get_weather", {"location": "San Francisco, CA"}, '{"location":"San Francisco, CA"}'
    ),
    core.InvocationCanister("call_2", "get_weather", None, '{"loc'),
    core.ResultCanister(invocation_id="call_1", content=(core.PictureContent(b"\x89PNG"),)),
    core.ResultCanister(invocation_id="call_2", content="Error: cut", error=core.ToolError("validation", "cut")),
    core.AssistantCanister("62°F"),
]


@pytest.fixture
def transcript(tmp_path):
    return Transcript(tmp_path / "conversations" / "first" / "messages.jsonl")


def test_what_was_appended_is_read(transcript):
    for canister in CONVERSATION:
        transcript.append(canister)
    read = Transcript(transcript.path).read()
    assert read == CONVERSATION
    assert read[1].timestamp == NOW


def test_each_canister_is_a_line_at_once(transcript):
    for number, canister in enumerate(CONVERSATION, 1):
        transcript.append(canister)
        lines = transcript.path.read_bytes().split(b"\n")
        assert lines[-1] == b""
        assert lines[number] == core.encode_line(canister)
        assert len(lines) == number + 2
    assert lines[0] == b'{"type":"conversation","version":1}'


def test_a_file_of_a_newer_callboard_is_refused(transcript):
    transcript.append(CONVERSATION[0])
    written = transcript.path.read_bytes()
    for version, why in (
        (b"2", "its format has version 2, and this Callboard reads version 1: update it"),
        (b"[]", ""),
    ):
        transcript.path.write_bytes(written.replace(b'"version":1', b'"version":' + version))
        with pytest.raises(CallerError) as caught:
            transcript.read()
        assert caught.value.path == f"{transcript.path}:1"
        assert caught.value.message.startswith(f"not a conversation: {why}")


def test_a_file_without_a_version_is_read(transcript):
    transcript.append(CONVERSATION[0])
    transcript.path.write_bytes(transcript.path.read_bytes().partition(b"\n")[2])
    assert transcript.read() == CONVERSATION[:1]


def test_it_is_its_owners_alone(transcript):
    transcript.append(CONVERSATION[0])
    assert stat.S_IMODE(transcript.path.stat().st_mode) == 0o600


def test_a_last_line_that_was_cut_is_left_out(transcript):
    for canister in CONVERSATION[:2]:
        transcript.append(canister)
    whole = transcript.path.read_bytes()
    first = whole.index(b"\n", whole.index(b"\n") + 1) + 1
    for end in range(len(whole)):
        transcript.path.write_bytes(whole[:end])
        assert transcript.read() == CONVERSATION[: end >= first]


@pytest.mark.parametrize("broken", [b'{"role":"user"', b"[]", b'{"role":"nobody"}', b"\xff", b'{"role":"invocation"}'])
def test_a_broken_line_is_named(transcript, broken):
    for canister in CONVERSATION[:2]:
        transcript.append(canister)
    lines = transcript.path.read_bytes().splitlines(keepends=True)
    transcript.path.write_bytes(b"".join([lines[0], broken + b"\n", lines[1]]))
    with pytest.raises(CallerError) as caught:
        transcript.read()
    assert caught.value.path == f"{transcript.path}:2"
    assert caught.value.message.startswith("not a canister: ")


def test_empty_lines_are_nothing(transcript):
    transcript.append(CONVERSATION[0])
    transcript.path.write_bytes(b"\n" + transcript.path.read_bytes() + b"\n\n")
    assert transcript.read() == CONVERSATION[:1]


def test_a_run_keeps_every_canister_as_soon_as_it_is_there(transcript):
    @tool
    def double(number: int) -> int:
        # What was said until now is on disk before a tool runs.
        kept.append(transcript.read())
        return 2 * number

    kept = []
    model = ScriptedModel([["Let me see. ", Call("double", {"number": 21})], "It is 42."])
    agent = Agent(model, [double], instructions="Be brief.", store=transcript)
    result = asyncio.run(agent.run("Twice 21?"))
    assert transcript.read() == [*result.canisters]
    assert [type(each) for each in result.canisters] == [
        core.SupervisorCanister,
        core.UserCanister,
        core.AssistantCanister,
        core.InvocationCanister,
        core.ResultCanister,
        core.AssistantCanister,
    ]
    assert kept == [[*result.canisters[:4]]]


def test_a_conversation_goes_on_in_its_file(transcript):
    model = ScriptedModel(["Hello, Ada.", "You are Ada."])
    agent = Agent(model, store=transcript)
    agent.run_sync("I am Ada.")
    agent.run_sync("Who am I?", history=transcript.read())
    assert [each.text for each in transcript.read()] == ["I am Ada.", "Hello, Ada.", "Who am I?", "You are Ada."]
    assert [each.text for each in model.requests[1].canisters] == ["I am Ada.", "Hello, Ada.", "Who am I?"]
