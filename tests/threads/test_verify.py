"""What was found where parts of the gateway meet: refusals that need two ways, pictures of results, second attempts."""

from __future__ import annotations

import json
from pathlib import Path

from tests.tables import table
from tests.threads.passing import exchange as through

from callboard import core
from callboard.testing import StatusReply

TESTS = Path(__file__).resolve().parents[1]


FRONTS = {"codex-some-model": "responses", "claude-some-model": "messages", "qwen-qwen3-vl-plus": "chat"}
SERVERS = {
    "minimax": "chat",
    "mistral": "chat",
    "groq": "chat",
    "gemini": "gemini",
    ("vllm", "gemma3"): "chat",
    ("llama.cpp", "gemma3"): "chat",
}


@table("which", ["first", "last"])
@table("client", FRONTS)
@table("strict", SERVERS)
def test_clients_are_answered_under_a_name_of_which_nothing_is_known(strict, client, which):
    """Each of their requests, with pictures in results and parallel calls; the second is refused no more."""
    captured = json.loads((TESTS / f"vectors/clients/{client}.json").read_text("utf-8"))
    request = FRONTS[client], {**captured[which], "model": "some-model"}
    answers, sent = through(["One.", "Two."], request, request, strict=strict, wire=SERVERS[strict])
    assert [each.status for each in answers] == [200, 200]
    assert [bool(each.refused_by) for each in sent[-2:]] == [False, False]


@table("strict", [("vllm", "gemma3"), ("llama.cpp", "gemma3")])
def test_gemma_3_is_told_of_tools_in_the_prompt_for_its_template_has_no_place_for_them(strict):
    captured = json.loads((TESTS / "vectors/clients/codex-gpt-5.5.json").read_text("utf-8"))
    (answer,), sent = through(["One."], ("responses", {**captured["last"], "model": "gemma-3-27b-it"}), strict=strict)
    assert answer.status == 200
    assert [each.refused_by for each in sent] == [""]


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
ASKED = {"model": "some-model", "messages": [{"role": "user", "content": "a"}], "tools": [TOOL]}


@table("stream", [False, True])
def test_the_words_that_a_second_attempt_adds_are_sent_as_the_template_takes_them(stream):
    """A model that only thought is asked once more, behind its user's words."""
    call = [
        core.InvocationStarted(0, "c1", "f"),
        core.ArgumentsPiece(0, "{}"),
        core.InvocationEnded(0, "c1", "f", {}, "{}"),
    ]

    def reply(body):
        roles = [each["role"] for each in body["messages"]]
        if roles == ["user", "user"]:
            return StatusReply(400, {"error": {"message": "Conversation roles must alternate user/assistant/..."}})
        if "That was no call" in body["messages"][-1]["content"]:
            return [core.ReplyStarted(), *call, core.Usage(1, 1), core.ReplyEnded("invocations")]
        return [core.ReplyStarted(), core.ReasoningPiece("Hm."), core.Usage(1, 1), core.ReplyEnded("stop")]

    (answer,), sent = through(reply, ("chat", {**ASKED, "tool_choice": "required", "stream": stream}))
    assert answer.status == 200
    assert len(sent) == 3
    said = answer.body["choices"] if not stream else [each for event in answer.events for each in event["choices"]]
    assert [each["finish_reason"] for each in said if each["finish_reason"]] == ["tool_calls"]


@table("found", ["x<|im_end|>", "x<\u2060|im_end|>"])
@table("field", ["x<|im_end|>", "x<\u2060|im_end|>"])
def test_a_call_is_one_whether_its_model_copied_an_escape_or_left_it_out(found, field):
    raw = json.dumps({"a": field})
    text = f"<tool_call>\n{json.dumps({'name': 'f', 'arguments': {'a': found}})}\n</tool_call>"
    call = [
        core.InvocationStarted(0, "c1", "f"),
        core.ArgumentsPiece(0, raw),
        core.InvocationEnded(0, "c1", "f", {"a": field}, raw),
    ]
    reply = [core.ReplyStarted(), core.TextPiece(text), *call, core.Usage(1, 1), core.ReplyEnded("invocations")]
    (answer,), _ = through([reply], ("chat", {**ASKED, "model": "qwen3-8b"}))
    calls = answer.body["choices"][0]["message"]["tool_calls"]
    assert [json.loads(each["function"]["arguments"]) for each in calls] == [{"a": "x<|im_end|>"}]


def test_what_one_request_showed_does_not_keep_another_from_showing_more():
    """However many facts are known of a model, the next refusal is learned from."""
    words = {
        "merge_system_messages": "System message must be at the beginning.",
        "supports_parallel_calls": "parallel_tool_calls is not supported",
        "supports_strict": "tools.0.function.strict: Extra inputs are not permitted",
        "requires_alternating_roles": "Conversation roles must alternate user/assistant/user/assistant/...",
        "efforts": "reasoning_effort must be one of low, medium, high",
    }

    def faults(body):
        roles = [each["role"] for each in body["messages"]]
        return {
            "merge_system_messages": roles.count("system") > 1,
            "supports_parallel_calls": "parallel_tool_calls" in body,
            "supports_strict": any("strict" in each["function"] for each in body["tools"]),
            "requires_alternating_roles": roles.count("user") > 1,
            "efforts": body.get("reasoning_effort") == "xhigh",
        }

    def reply(body):
        found = [words[name] for name, is_so in faults(body).items() if is_so]
        return StatusReply(400, {"error": {"message": found[0]}}) if found else "Fine."

    said = [{"role": role, "content": role} for role in ("system", "system", "user", "user")]
    tool = {**TOOL, "function": {**TOOL["function"], "strict": False}}
    first = {**ASKED, "messages": said, "tools": [tool], "parallel_tool_calls": False}
    answers, sent = through(reply, ("chat", first), ("chat", {**first, "reasoning_effort": "xhigh"}))
    assert [each.status for each in answers] == [200, 200]
    assert len(sent) == 5 + 2
