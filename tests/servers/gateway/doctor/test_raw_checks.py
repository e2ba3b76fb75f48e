"""What follows from a backend's replies: of servers that obey, that take a field and ignore it, and that refuse it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.servers.gateway.doctor.scripted_server import CHECKS, EVERYTHING, ScriptedServer, find
from tests.tables import table

from callboard.profiles import Profile, resolve
from callboard.providers.backend_info import BackendInfo
from callboard.servers.gateway.doctor.raw_backend import RawReply
from callboard.servers.gateway.doctor.raw_checks import RAW_CHECKS, Subject
from callboard.testing.strict import SERVERS

QWEN = Subject(resolve("qwen2.5-7b").profile)
UNKNOWN = Subject(Profile())


def without(*features):
    return ScriptedServer(EVERYTHING - {*features})


@table(
    ("check", "server", "state", "facts"),
    [
        ("calls", ScriptedServer(), "yes", {"supports_tools": True, "uses_tools": True}),
        ("calls", without("tools"), "partly", {}),
        ("schema enforced", ScriptedServer(), "yes", {"supports_json_schema": True}),
        ("schema enforced", without("json_schema"), "no", {"supports_json_schema": False}),
        ("log-probabilities", ScriptedServer(), "yes", {"supports_logprobs": True}),
        ("log-probabilities", without("logprobs"), "no", {"supports_logprobs": False}),
        ("forced calls", ScriptedServer(), "yes", {"supports_forced_calls": True}),
        ("forced calls", without("required"), "partly", {}),
        ("forced calls", without("required", "named"), "no", {"supports_forced_calls": False}),
        ("prefill", ScriptedServer(), "yes", {"prefill": "last"}),
        ("prefill", ScriptedServer(EVERYTHING | {"echo"}), "partly", {}),  # as llama.cpp
        ("prefill", without("last", "prefix", "partial"), "yes", {"prefill": "continue"}),
        ("prefill", without("last", "prefix", "partial", "continue"), "no", {"prefill": "none"}),
        (
            "system messages arrive",
            ScriptedServer(),
            "yes",
            {"supports_system_role": True, "merge_system_messages": False},
        ),
        ("system messages arrive", without("second"), "no", {"merge_system_messages": True}),
        ("system messages arrive", without("later"), "no", {"merge_system_messages": True}),
        ("system messages arrive", without("system", "second", "later"), "no", {"supports_system_role": False}),
        ("system messages arrive", without("counts", "second"), "partly", {}),
        ("control tokens as text", ScriptedServer(), "partly", {"parses_special_tokens": True}),
        ("control tokens as text", ScriptedServer(parses=False), "yes", {"parses_special_tokens": False}),
        ("control tokens as text", without("counts"), "partly", {}),
    ],
)
def test_a_fact_follows_from_what_came_back(check, server, state, facts):
    """Every one of these servers answers 200 to everything."""
    conclusion = find(check, server, QWEN)
    assert (conclusion.state, conclusion.facts) == (state, facts)
    assert conclusion.facts.keys() <= {*CHECKS[check].facts}


REFUSALS = {
    ("vllm-without-parser", "calls"): {"supports_tools": False},
    ("llama.cpp-b8763", "prefill"): {"prefill": "none"},
    ("deepseek", "forced calls"): {"supports_forced_calls": False},
    ("kimi", "forced calls"): {"supports_forced_calls": False},
    ("minimax", "system messages arrive"): {"merge_system_messages": True},
    ("mistral", "prefill"): {"prefill": "prefix"},
    ("qwen3.5", "system messages arrive"): {"merge_system_messages": True},
    ("gemma3", "system messages arrive"): {"merge_system_messages": True},
}


@table("name", [*SERVERS, "qwen3.5", "gemma3"])
def test_what_follows_from_the_refusals_of_real_servers(name):
    """Only what they refuse: all else is as of a server that obeys."""
    for check in CHECKS:
        facts = find(check, ScriptedServer(strict=name), QWEN).facts
        assert facts == REFUSALS.get((name, check), find(check, ScriptedServer(), QWEN).facts), (name, check)


@table(
    ("call", "dialect"),
    [
        ('<tool_call>\n{"name": "read_file", "arguments": %s}\n</tool_call>', "hermes"),
        ("[TOOL_CALLS]read_file[ARGS]%s", "mistral"),
    ],
)
def test_a_call_that_leaks_into_the_text_is_watched_for_in_its_dialect(call, dialect):
    conclusion = find("calls", ScriptedServer(call=call), Subject(Profile(watch="")))
    assert (conclusion.state, conclusion.facts) == ("partly", {"uses_tools": True, "watch": dialect})
    for watch in ("auto", ("json", dialect)):
        known = find("calls", ScriptedServer(call=call), Subject(Profile(watch=watch)))
        assert known.facts == {"uses_tools": True}
        assert f"in the dialect {dialect}:" in known.detail


def test_of_an_unknown_family_no_token_is_known_to_be_spelled():
    """Another token than those that were tried may be one: escaping them all is safe."""
    assert find("control tokens as text", ScriptedServer(parses=False), UNKNOWN).facts == {}
    assert find("control tokens as text", ScriptedServer(), UNKNOWN).facts == {"parses_special_tokens": True}


def test_tokens_of_the_template_are_tried_first():
    subject = Subject(Profile(), BackendInfo(chat_template="{{ x }}<|im_end|>"))
    assert len(CHECKS["control tokens as text"].requests(subject)) == 2


@table(
    ("info", "refusal", "tokens"),
    [
        (BackendInfo(context_tokens=4096, context_source="/props"), "", 4096),
        (
            BackendInfo(),
            "400: max_tokens is too large: 99999999. This model's maximum context length is 32768 tokens",
            32768,
        ),
        (BackendInfo(), "400: exceeds the model's 8192-token context", 8192),
        (BackendInfo(), "400: max_tokens 99999999 exceeds context length 4096", 4096),
        (BackendInfo(), "400: max_tokens 99999999 exceeds context", None),
        (BackendInfo(), "400: exceeds the model's 131,072-token context", 131072),
        (BackendInfo(), "400: maximum context length is 128,000 tokens, and 99999999 were asked for", 128000),
        (BackendInfo(), "400: maximum context length is 128\u202f000 tokens", 128000),
        (BackendInfo(), "400: maximum context length is 128 000 tokens", 128000),
        (BackendInfo(), "400: maximum context length is 1.048.576 tokens", 1048576),
        (BackendInfo(), "400: the context window of 200_000 tokens", 200000),
        (BackendInfo(), "400: the context window of 1'000'000 tokens", 1000000),
        (BackendInfo(), "400: the context window of 1,28,000 tokens", 128000),
        (BackendInfo(), "400: context size (8192, 500 requested)", 8192),
        (BackendInfo(), "400: the context window of 128k tokens", None),
        (BackendInfo(), "400: this model supports at most 16384 completion tokens", None),
        (BackendInfo(), "", None),
    ],
)
def test_the_context_s_length_is_what_the_server_says(info, refusal, tokens):
    check = CHECKS["context length"]
    subject = Subject(Profile(), info)
    replies = [RawReply(400 if refusal else 200, fault=refusal) for _ in check.requests(subject)]
    assert check.read(replies, subject).facts == ({"context_tokens": tokens} if tokens else {})


def test_nothing_follows_from_an_answer_that_is_none():
    """A server that hangs, is busy, or sends a page."""
    for fault in (
        RawReply(fault="no answer within 1 s"),
        RawReply(429, fault="429: slow down"),
        RawReply(200, fault="not a JSON object: <!doctype html>"),
    ):
        for check in RAW_CHECKS:
            replies = [fault for _ in check.requests(QWEN)] or [fault]
            conclusion = check.read(replies, QWEN)
            assert (conclusion.facts, conclusion.state) in (({}, "no"), ({}, "partly"), ({}, "yes")), check.name
            assert conclusion.facts == {}, check.name


@table("check", ["forced calls", "schema enforced", "prefill"])
@table("text", [None, "", "<think>\nThe user"])
def test_nothing_follows_from_a_reply_that_is_cut_within_a_thought(check, text):
    reply = RawReply(200, {"choices": [{"message": {"content": text}, "finish_reason": "length"}]})
    conclusion = CHECKS[check].read([reply for _ in CHECKS[check].requests(QWEN)], QWEN)
    assert conclusion.facts == {}
    assert "cut during reasoning" in conclusion.detail


def test_a_log_probability_may_be_any_number():
    tokens = [{"token": "Paris", "logprob": -(10**400)}]
    body = {"choices": [{"message": {"content": "P"}, "logprobs": {"content": [{"top_logprobs": tokens}]}}]}
    assert CHECKS["log-probabilities"].read([RawReply(200, body)] * 2, QWEN).facts == {"supports_logprobs": True}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "message",
                    "content",
                    "delta",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "index",
                    "usage",
                    "prompt_tokens",
                    "logprobs",
                    "top_logprobs",
                    "token",
                    "logprob",
                    "finish_reason",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@settings(max_examples=20)
@given(st.dictionaries(st.sampled_from(["choices", "usage"]), JSON))
def test_no_answer_is_too_odd_to_be_read(body):
    reply = RawReply(200, body)
    for check in RAW_CHECKS:
        replies = [reply for _ in check.requests(QWEN)] or [reply]
        conclusion = check.read(replies, QWEN)
        assert conclusion.detail.isprintable()
