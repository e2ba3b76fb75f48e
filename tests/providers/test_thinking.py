"""Thinking on, off, and how much: one word of the caller in the spelling of each family and server."""

from __future__ import annotations

import asyncio

from tests.tables import table

from callboard import Agent, core
from callboard.core import reply_events
from callboard.profiles import resolve
from callboard.profiles.resolution import _table
from callboard.providers import open_model
from callboard.testing import FakeBackend

ON = {"chat_template_kwargs": {"enable_thinking": True}}
OFF = {"chat_template_kwargs": {"enable_thinking": False}}
KIMI = {"chat_template_kwargs": {"thinking": False}, "thinking": {"type": "disabled"}}


def ask(name, effort, *, strict=(), extra=None, count=1, profile=None):
    """The last events, and the bodies that were sent."""

    async def scenario():
        async with FakeBackend(["Hi."] * 9, strict=strict) as backend:
            model = open_model(name, base_url=backend.url, api_key="k", extra_body=extra, profile=profile)
            request = core.Request(name, (core.UserCanister("Hi"),), controls=core.Controls(effort=effort))
            events = [[each async for each in reply_events(model, request)] for _ in range(count)][-1]
            await model.aclose()
            return events, [each.body for each in backend.requests if each.body]

    return asyncio.run(scenario())


def sent(name, effort, **options):
    events, (body,) = ask(name, effort, **options)
    assert isinstance(events[-1], core.ReplyEnded)
    return {field: value for field, value in body.items() if field not in {"model", "messages", "stream"}}


@table(
    ("model", "effort", "fields"),
    [
        ("vllm:qwen3-8b", "none", {**OFF, "reasoning_effort": "none"}),
        ("vllm:qwen3-8b", "medium", {**ON, "reasoning_effort": "medium"}),
        ("llamacpp:Qwen3.8-27B", "none", {**OFF, "reasoning_effort": "none"}),
        ("llamacpp:Qwen3.8-27B", "high", {**ON, "reasoning_effort": "medium"}),
        ("vllm:gemma-4-31b-it", "low", {**ON, "reasoning_effort": "low"}),
        ("vllm:SmolLM3-3B", "none", {**OFF, "reasoning_effort": "none"}),
        ("vllm:deepseek-v3.1", "none", KIMI),
        ("openai:kimi-k2.6", "none", KIMI),
        ("vllm:gpt-oss-20b", "xhigh", {"reasoning_effort": "high"}),
        ("vllm:Seed-OSS-36B-Instruct", "low", {"chat_template_kwargs": {"thinking_budget": 1024}, "reasoning_effort": "low"}),
        ("ollama:qwen3:8b", "none", {"reasoning_effort": "none"}),
        ("openrouter:qwen/qwen3-8b", "none", {"reasoning": {"effort": "none"}}),
        ("openrouter:qwen/qwen3-8b", "max", {"reasoning": {"effort": "xhigh"}}),
        ("openai:mistral-small-latest", "medium", {"reasoning_effort": "high"}),
        # It does not think, and its template gets nothing.
        ("vllm:qwen2.5-coder-7b", "none", {"reasoning_effort": "none"}),
        ("vllm:qwen3-coder-30b", "none", {"reasoning_effort": "none"}),
    ],
)  # fmt: skip
def test_each_family_gets_its_own_spelling_at_each_server(model, effort, fields):
    body = sent(model, effort)
    assert {field: value for field, value in body.items() if field != "stream_options"} == fields


def test_nothing_is_sent_if_nobody_says_anything_about_thinking():
    assert sent("vllm:qwen3-8b", None).keys() == {"stream_options"}
    assert OFF.items() <= sent("vllm:qwen3-8b", None, profile={"effort": "none"}).items()
    assert ON.items() <= sent("vllm:qwen3-8b", "high", profile={"effort": "none"}).items()


def test_fields_that_a_caller_sets_win():
    extra = {"chat_template_kwargs": {"enable_thinking": True, "custom": 1}}
    assert sent("vllm:qwen3-8b", "none", extra=extra)["chat_template_kwargs"] == extra["chat_template_kwargs"]


@table(
    ("model", "effort", "words"),
    [
        ("vllm:NVIDIA-Nemotron-Nano-9B-v2", "none", "/no_think"),
        ("vllm:NVIDIA-Nemotron-Nano-9B-v2", "high", "/think"),
        ("vllm:Llama-3_3-Nemotron-Super-49B-v1", "none", "detailed thinking off"),
    ],
)
def test_a_model_without_a_field_reads_it_in_its_instructions(model, effort, words):
    _, (body,) = ask(model, effort)
    assert body["messages"] == [{"role": "system", "content": words}, {"role": "user", "content": "Hi"}]


@table(
    ("model", "effort", "strict", "before", "after"),
    [
        # Fields of chat templates are refused.
        ("openai:qwen3-32b", "none", "cerebras", OFF, {"reasoning_effort": "none"}),
        # The effort is refused, and the field is enough.
        ("openai:qwen3-32b", "none", "sglang", {"reasoning_effort": "none"}, OFF),
        # The model cannot think.
        ("openai:llama3.2", "medium", "ollama-without-thinking", {"reasoning_effort": "medium"}, {}),
        # A fine-tune, whose name does not say what its template accepts.
        ("openai:my-tune", "high", ("vllm", "qwen3.8"), {"reasoning_effort": "high"}, {}),
    ],
)
def test_a_refusal_teaches_another_spelling(model, effort, strict, before, after):
    events, bodies = ask(model, effort, strict=strict, count=2)
    assert isinstance(events[-1], core.ReplyEnded)
    assert before.items() <= bodies[0].items()
    thinking = {"chat_template_kwargs", "reasoning_effort"}
    assert {field: value for field, value in bodies[-1].items() if field in thinking} == after
    assert bodies[-2] == bodies[-1]  # it was remembered


@table(
    ("model", "effort", "fields"),
    [("vllm:gpt-oss-20b", "none", {"reasoning_effort": "low"}), ("openai:magistral-medium", "none", {})],
)
def test_an_effort_that_cannot_be_expressed_is_dropped_and_reported(model, effort, fields):
    events, (body,) = ask(model, effort)
    assert fields.items() <= body.items()
    assert [each.unsent for each in events if isinstance(each, core.Note)] == [f"effort {effort}"]


def test_the_template_of_qwen_38_accepts_what_it_gets():
    for effort in core.EFFORTS:
        events, bodies = ask("vllm:qwen3.8-27b", effort, strict=("vllm", "qwen3.8"))
        assert isinstance(events[-1], core.ReplyEnded)
        assert len(bodies) == 1


def test_every_row_has_its_source_and_names_facts():
    for row in _table()["thinking"]:
        resolution = resolve(row["patterns"][0])
        for fact in ("thinking_off", "thinking_words", "efforts", "effort_field"):
            if fact in row:
                assert len(resolution.evidence[fact]) > 10, row["name"]


def test_a_thought_that_reaches_the_limit_is_reported():
    thought = [core.ReasoningPiece("Hm, let me", origin="m"), core.ReplyEnded("length")]

    async def scenario():
        async with FakeBackend([[core.ReplyStarted(), *thought]]) as backend:
            async with asyncio.timeout(30):
                return await Agent("m", base_url=backend.url).run("Hi", controls=core.Controls(max_tokens=9))

    result = asyncio.run(scenario())
    assert (result.state, result.text) == ("incomplete", "")
    assert "while the model thought; raise max_tokens, or set the effort to none" in result.why
