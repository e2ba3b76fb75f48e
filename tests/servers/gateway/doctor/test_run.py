"""What the doctor says of backends that each have one fault."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.servers.gateway.doctor.scripted_server import EVERYTHING, ScriptedServer
from tests.servers.gateway.fronts import call_events, reply
from tests.tables import table

from callboard.core import TextPiece, Usage
from callboard.errors import CallerError
from callboard.servers.gateway import BackendSettings
from callboard.servers.gateway.doctor.probes import CLIENTS, DoctorBudget
from callboard.servers.gateway.doctor.raw_checks import RAW_CHECKS
from callboard.servers.gateway.doctor.run import FACTS_FIRST, examine
from callboard.testing import FakeBackend, Html, Raw, Silence, StatusReply

VECTORS = Path(__file__).parents[3] / "vectors"
ARGUMENTS = {
    "read_file": {"path": "notes.txt"},
    "exec_command": {"cmd": "ls"},
    "functions__exec": {"input": "text(1)"},
    "Bash": {"command": "ls"},
    "run_shell_command": {"command": "ls"},
}
USAGE = Usage(input=3, output=4)


def refused(message, status=400):
    return StatusReply(status, {"error": {"message": message, "type": "invalid_request_error"}})


def declared(body):
    """The tools' names, where the backend is told of them, or where they stand in the prompt."""
    told = [tool["function"]["name"] for tool in body.get("tools", [])]
    said = json.dumps(body["messages"])
    return told or [name for name in ARGUMENTS if name in said and '"description' in said.replace("\\", "")]


def native(name, usage=USAGE):
    return reply(*call_events(name, ARGUMENTS[name]), *([usage] if usage else []))


def hermes(name):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': ARGUMENTS[name]})}\n</tool_call>"


class Model:
    """A backend's model that calls the first tool it knows; `fault(body)` answers instead where it gives something."""

    def __init__(self, fault=None, *, call=native, text="ready", ignores_choice=False):
        self.fault = fault
        self.call = call
        self.text = text
        self.ignores_choice = ignores_choice

    def __call__(self, body):
        if self.fault is not None and (answer := self.fault(body)) is not None:
            return answer
        last = body["messages"][-1]
        names = [name for name in ARGUMENTS if name in declared(body)]
        done = last["role"] == "tool" or "call_1" in json.dumps(last) or "README.md" in str(last) or "milk" in str(last)
        chosen = isinstance(body.get("tool_choice"), dict)
        asked = "ready" not in json.dumps(last) and not (self.ignores_choice and (chosen or "morning" in str(last)))
        return self.call(names[0]) if names and asked and not done else self.text


async def report(model, **settings):
    rows, started = [], []

    async with FakeBackend(model) as backend:
        given = BackendSettings(url=backend.url, **settings)
        told = await examine(given, "", started.append, rows.append, groups=["clients"])
    assert [*told.backend, *told.clients] == rows
    assert len(started) == len(rows)
    return told, {row.name: row for row in rows}, backend


async def test_a_backend_without_a_fault():
    told, rows, backend = await report(Model())
    assert told.works
    assert told.flags == ()
    assert told.model == "fake-model"
    assert {row.detail for row in told.clients} == {"native"}
    assert [row.name for row in told.clients] == list(CLIENTS)
    assert rows["Codex"].dropped == ("client_metadata", "description of the namespace multi_agent_v1")
    assert rows["Gemini CLI"].dropped == ("generationConfig.topK",)
    assert rows["Qwen Code"].dropped == ()
    assert len([asked for asked in backend.requests if asked.method == "POST"]) < 20


def test_gemini_cli_s_probe_has_the_fields_that_it_sends():
    """But for those of the URL, and the limit that keeps the probe short."""
    recorded = json.loads((VECTORS / "clients/gemini-2.5-pro.json").read_text("utf-8"))
    for probe, real in zip(CLIENTS["Gemini CLI"][1], (recorded["first"], recorded["last"]), strict=True):
        assert set(probe) - {"stream", "alt"} == set(real)
        assert set(probe["generationConfig"]) - {"maxOutputTokens"} == set(real["generationConfig"])
        assert [each["role"] for each in probe["contents"]] == [each["role"] for each in real["contents"]][
            : len(probe["contents"])
        ]
        tools = {tool["name"]: set(tool) for tool in real["tools"][0]["functionDeclarations"]}
        assert {tool["name"]: set(tool) for tool in probe["tools"][0]["functionDeclarations"]}.items() <= tools.items()


def no_tools(body):
    return refused("tools are not supported by this model") if body.get("tools") else None


def late_system(body):
    late = any(message["role"] == "system" for message in body["messages"][1:])
    return refused("System message must be at the beginning.") if late else None


def lacking(field):
    return lambda body: refused(f"unknown field: {field}") if field in body else None


def thought(body):
    said = any("reasoning_content" in message for message in body["messages"])
    return refused("Extra inputs are not permitted: reasoning_content") if said else None


def strict(body):
    told = any("strict" in tool["function"] for tool in body.get("tools", []))
    return refused("strict is not known") if told else None


def streaming(body):
    return refused("streaming is not supported") if body.get("stream") else None


@table(
    ("fault", "row", "fact", "value"),
    [
        (late_system, "Codex", "merge_system_messages", True),
        (lacking("stream_options"), "Codex", "reports_usage", False),
        (lacking("parallel_tool_calls"), "Codex", "supports_parallel_calls", False),
        (thought, "Codex", "reasoning_field", "reasoning"),
        (strict, "Codex", "supports_strict", False),
        (streaming, "Codex", "supports_streaming", False),
        (lacking("reasoning_effort"), "Codex, newest models", "efforts", [""]),
    ],
)
async def test_what_the_gateway_finds_out_by_itself_stops_nobody_and_is_said(fault, row, fact, value):
    told, rows, _ = await report(Model(fault))
    spelled = value if isinstance(value, str) else json.dumps(value)
    assert rows[row].state == "yes"
    assert f"{fact}={spelled}" in rows[row].fix
    assert (told.works, told.flags) == (True, ())
    assert json.loads(json.dumps(told.facts)) == {fact: value}
    assert told.evidence[fact] == f"{row}: a request was refused without it and accepted with it"


@table(
    ("fault", "facts"),
    [
        (late_system, {"merge_system_messages": True}),
        (lacking("stream_options"), {"reports_usage": False}),
        (lacking("reasoning_effort"), {"efforts": [""]}),
    ],
)
async def test_with_the_flag_every_client_works(fault, facts):
    assert (await report(Model(fault), profile=facts))[0].works


async def test_a_backend_that_takes_no_tools():
    """The gateway finds it out by itself; the flag only spares it."""
    told, rows, _ = await report(Model(no_tools, call=hermes), dialect="hermes")
    assert told.works
    assert rows["Codex"].detail == "the tools are in the prompt (mode validated)"
    assert rows["Codex"].fix == "--mode validated"


async def test_a_model_that_writes_its_calls_into_its_text():
    told, _, _ = await report(Model(call=hermes))
    assert told.works
    assert {row.detail for row in told.clients} == {"written into the text"}


async def test_a_model_that_calls_only_if_the_tools_are_in_its_prompt():
    def prompted(body):
        return "I would run ls." if body.get("tools") else None

    told, _, _ = await report(Model(prompted, call=hermes), dialect="hermes")
    assert {row.state for row in told.clients} == {"no"}
    assert {row.fix for row in told.clients} == {"--mode validated"}
    assert (told.works, told.flags, told.facts) == (False, ("--mode validated",), {"mode": "validated"})


async def test_a_model_that_never_calls():
    told, _, _ = await report(Model(call=lambda name: "I would run ls."))
    assert not told.works
    assert {row.detail for row in told.clients} == {"the model does not call its tools"}
    assert told.flags == ()


@table("answer", [refused("Incorrect API key", 401), StatusReply(500), Html()], ids=["key", "500", "page"])
async def test_a_backend_that_does_not_answer(answer):
    told, rows, _ = await report(lambda body: answer)
    assert list(rows) == ["answers"]
    assert rows["answers"].state == "no"
    assert rows["answers"].detail
    assert not told.works


async def test_no_model():
    with pytest.raises(CallerError, match="--model"):
        async with FakeBackend([], models=()) as backend:
            await examine(BackendSettings(url=backend.url), "", print, print)


async def examine_itself(server, *, pages=None, budget=None, groups=("backend",), **settings):
    """A backend that streams as `Model` does, and answers whole as the server does."""
    streams = Model()
    rows = []

    def replied(body):
        if body.get("stream"):
            return streams(body)
        answer = server(body)
        return Raw([answer[1]]) if isinstance(answer, tuple) and answer[0] == 200 else answer_of(answer)

    async with FakeBackend(replied, pages=pages) as backend:
        backend_settings = BackendSettings(url=backend.url, **settings)
        told = await examine(backend_settings, "", lambda _: None, rows.append, groups=groups, budget=budget)
    assert sorted([*told.backend, *told.clients], key=rows.index) == rows
    return told, {row.name: row for row in told.backend[1:]}


def answer_of(answer):
    return StatusReply(*answer) if isinstance(answer, tuple) else answer


async def test_what_a_backend_does_by_itself_becomes_facts_with_their_evidence():
    props = {"build_info": "b1", "default_generation_settings": {"n_ctx": 4096}}
    told, rows = await examine_itself(ScriptedServer(EVERYTHING), pages={"/props": props})
    assert list(rows) == [check.name for check in RAW_CHECKS]
    assert told.facts == {
        "supports_tools": True,
        "uses_tools": True,
        "supports_json_schema": True,
        "supports_logprobs": True,
        "supports_forced_calls": True,
        "context_tokens": 4096,
        "supports_system_role": True,
        "merge_system_messages": False,
        "parses_special_tokens": True,
        "prefill": "last",
    }
    assert told.evidence["supports_json_schema"] == "schema enforced: the schema was enforced against the question"
    assert told.evidence.keys() == told.facts.keys()
    assert {*told.asked_facts} > {*told.facts}
    assert "b1, context 4096" in told.version


async def test_of_another_wire_these_questions_are_not_asked():
    async with FakeBackend(lambda body: "ready") as backend:
        settings = BackendSettings(url=backend.url, wire="responses")
        budget = DoctorBudget(100, 1)
        outcome = await examine(settings, "", lambda _: None, lambda _: None, groups=["backend"], budget=budget)
    _, row = outcome.backend
    assert (row.state, row.detail) == ("not asked", "these checks need the wire chat")


async def test_nothing_follows_from_a_server_that_has_broken_down():
    """After its first replies it answers every question with 500, the control question as well."""

    def broken(body):
        return (
            (500, "out of memory") if body["max_tokens"] == 1 or "response_format" in body else ScriptedServer()(body)
        )

    told, rows = await examine_itself(broken)
    assert rows["schema enforced"].detail == "the backend fails: 500: out of memory"
    assert not told.facts.keys() & {"supports_json_schema", "supports_logprobs", "supports_system_role"}
    assert "supports_json_schema" not in told.asked_facts
    assert told.facts["uses_tools"] is True


async def test_nor_from_one_that_is_busy():
    """What was found of it earlier stays, for this time it was not asked."""

    def busy(body):
        return (429, "slow down") if "response_format" in body or body.get("tools") else ScriptedServer()(body)

    told, rows = await examine_itself(busy)
    assert rows["schema enforced"].detail == "429: slow down"
    assert not {*told.asked_facts} & {"supports_json_schema", "supports_tools", "supports_forced_calls"}
    assert "supports_logprobs" in told.asked_facts


async def test_facts_come_before_what_clients_need_where_they_are_to_be_written():
    told, _ = await examine_itself(ScriptedServer(), budget=DoctorBudget(100, 12), groups=FACTS_FIRST)
    assert told.facts["supports_json_schema"] is True
    assert {row.state for row in told.clients} == {"not asked"}


KEY = "sk-0123456789abcdef"


@table("answer", [{"error": {"message": f"tools? {'x' * 100} your key {KEY}"}}, f"<p>{KEY}</p>"])
async def test_a_key_that_the_backend_repeats_is_neither_shown_nor_kept(answer):
    def repeats(body):
        return (400, answer) if body.get("tools") or "response_format" in body else ScriptedServer()(body)

    told, rows = await examine_itself(repeats, key=KEY)
    assert "400: " in rows["calls"].detail
    assert "***" in rows["calls"].detail
    assert KEY[:6] not in str(told)


async def test_nor_is_one_that_a_model_repeats():
    def repeats(body):
        message = {"content": KEY}
        return (200, {"choices": [{"message": message}]}) if "response_format" in body else ScriptedServer()(body)

    told, rows = await examine_itself(repeats, key=KEY)
    assert "the reply was '***'" in rows["schema enforced"].detail
    assert KEY not in str(told)


async def test_a_refusal_is_shown_on_one_line_that_moves_no_cursor():
    _, rows, _ = await report(Model(lambda body: refused("no\n\x1b[2J\u202etools") if body.get("tools") else None))
    assert rows["Codex"].state == "no"
    assert all(row.detail.isprintable() for row in rows.values())


async def test_what_the_budget_does_not_suffice_for_is_not_asked():
    told, rows = await examine_itself(ScriptedServer(), budget=DoctorBudget(100, 20))
    states = [row.state for row in rows.values()]
    first = states.index("not asked")
    assert first > 0
    assert {*states[first:]} == {"not asked"}
    assert [row.detail for row in rows.values()][-1] == "20 requests sent"
    assert "prefill" not in told.asked_facts
    assert "supports_tools" in told.facts


async def test_clients_that_were_not_asked_are_not_known_to_work():
    told, _ = await examine_itself(ScriptedServer(), budget=DoctorBudget(100, 4), groups=("clients",))
    assert not told.works
    assert told.clients[-1].state == "not asked"


async def test_a_backend_that_hangs_is_left_in_time():
    told, rows = await examine_itself(lambda body: Silence(), budget=DoctorBudget(0.6))
    assert (told.backend[0].state, told.backend[0].detail) == ("no", "no answer within 0.2 s")
    assert rows == {}


async def test_a_reply_without_an_end_is_left():
    def endless(body):
        return reply(*[TextPiece("x" * 1000)] * 200) if body.get("stream") else None

    _, rows, _ = await report(Model(endless))
    assert (rows["Codex"].state, rows["Codex"].detail) == ("no", "its reply does not end at the token limit")
