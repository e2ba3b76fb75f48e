"""Calls and results stay paired whatever a conversation held and wherever it is cut."""

from __future__ import annotations

from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard import core
from callboard.loop import ContextWindow
from callboard.testing.strict import Rulebook
from callboard.tools import Ensemble, InvokerRegistry, tool
from callboard.wires import WIRES
from callboard.wires.common.group_turns import reorder_results

REFUSING = {"chat": ("openai", "vllm"), "gemini": ("gemini",)}
"""Servers that refuse what is not paired."""


@tool(idempotent=True, subjects={"path": "path"})
def read(path: str) -> str:
    return path


@tool(subjects={"path": "path"})
def write(path: str) -> str:
    return path


ROSTER = InvokerRegistry([Ensemble("local", [read, write])])
SIZES = st.sampled_from([1, 300, 4000])


@st.composite
def conversations(draw, *, unique=True):
    """Rounds with parallel batches, pending calls, errors, orphan and second results, documents and reasoning."""
    numbers = count()
    canisters = [core.SupervisorCanister("Be good."), core.UserCanister("Mend it.")]
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            canisters.append(
                core.AssistantCanister((core.ReasoningContent("I think.", origin="m"), core.TextualContent("So.")))
            )
        calls = []
        for _ in range(draw(st.integers(0, 3))):
            identifier = f"c{next(numbers) if unique else draw(st.integers(0, 2))}"
            name = draw(st.sampled_from(["read", "write"]))
            calls.append(core.InvocationCanister(identifier, name, {"path": draw(st.sampled_from("ab"))}, ""))
        canisters += calls
        for call in draw(st.permutations(calls)):
            text = "x" * draw(SIZES)
            match draw(st.sampled_from(["result", "result", "result", "error", "pending", "twice"])):
                case "result":
                    canisters.append(core.ResultCanister(text, invocation_id=call.identifier))
                case "error":
                    canisters.append(core.error_result(call.identifier, "execution", text))
                case "twice":
                    canisters += [core.ResultCanister(text, invocation_id=call.identifier)] * 2
        match draw(st.sampled_from(["none", "none", "user", "document", "orphan", "supervisor"])):
            case "user":
                canisters.append(core.UserCanister("And " + "y" * draw(SIZES)))
            case "document":
                canisters.append(core.DocumentCanister("d" * draw(SIZES), title="d.txt"))
            case "orphan":
                canisters.append(core.ResultCanister("o", invocation_id="gone"))
            case "supervisor":
                canisters.append(core.SupervisorCanister("Be better."))
    return canisters


def assert_taken(canisters, wire):
    """Strict servers take the conversation; each call is followed by its result."""
    request = core.Request("m", tuple(canisters), tools=())
    body = WIRES[wire].encode_request(request).body
    if wire == "messages":
        assert_messages(body["messages"])
    if wire == "responses":
        assert_items(body["input"])
    for server in REFUSING.get(wire, ()):
        refused = Rulebook(server).refuse(wire, body)
        assert refused is None or refused.rule.name == "signed-calls", refused  # they are not signed here


def assert_messages(messages):
    for said, answered in zip(messages, [*messages[1:], None], strict=True):
        calls = [each["id"] for each in said["content"] if each["type"] == "tool_use"]
        behind = answered["content"][: len(calls)] if calls else []
        assert [each.get("tool_use_id") for each in behind] == calls
    roles = [each["role"] for each in messages]
    assert all(one != other for one, other in pairwise(roles))


def assert_items(items):
    calls = [each["call_id"] for each in items if each["type"].endswith("_call")]
    outputs = [each["call_id"] for each in items if each["type"].endswith("_output")]
    assert sorted(calls) == sorted(outputs)


every_wire = pytest.mark.parametrize("wire", ["chat", "responses", "messages", "gemini"])


@every_wire
@given(st.booleans().flatmap(lambda unique: conversations(unique=unique)), st.data())
def test_openclaw_8525_a_client_may_cut_its_history_anywhere(wire, canisters, data):
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(canisters))] * 2)))
    cut = [canisters[0], *canisters[first:last]]
    again = data.draw(st.integers(0, len(cut)))
    for each in (cut, cut[again:], [*cut[:again], *canisters[last:]]):
        ordered, _ = reorder_results(each)
        assert_taken([*ordered, core.UserCanister("Go on.")], wire)


@given(conversations(), st.sampled_from([400, 1500, 4000]), st.integers(1, 3), st.integers(0, 3), st.data())
def test_openclaw_28377_and_pi_4570_what_a_history_shows_is_paired_round_after_round(
    canisters, limit, keep, every, data
):
    view = ContextWindow(limit=limit, keep=keep, every=every, invokers=ROSTER)
    ends = sorted(
        data.draw(
            st.sets(st.integers(1, len(canisters)), min_size=2, max_size=6) if len(canisters) > 2 else st.just({1, 2})
        )
    )
    for end in ends:
        shown = view.show(canisters[:end])
        assert_paired(canisters[:end], shown)
        again = ContextWindow(limit=limit, keep=keep, every=every, invokers=ROSTER).show(shown)
        assert_paired(shown, again)


def assert_paired(given, shown):
    """A call and its result are shown together or not at all."""
    held = identifiers(given, core.InvocationCanister, "identifier")
    answered = identifiers(given, core.ResultCanister, "invocation_id") & held
    calls = identifiers(shown, core.InvocationCanister, "identifier")
    assert identifiers(shown, core.ResultCanister, "invocation_id") & held == answered & calls


def identifiers(canisters, kind, field):
    return {getattr(each, field) for each in canisters if isinstance(each, kind)}
