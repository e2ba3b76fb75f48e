"""Calls are judged before anyone sees them: held, asked about, passed or stopped."""

from __future__ import annotations

import math

from tests.tables import table

from callboard import core
from callboard.modes.filters.gate import create_gate, read_confidence
from callboard.modes.mode import Gate

WEATHER = core.ToolDeclaration(
    "weather", "The weather of a city.", {"properties": {"city": {"type": "string"}}, "required": ["city"]}
)
CLOCK = core.ToolDeclaration("clock", "The time of day.", {"properties": {}})
REQUEST = core.Request("m", [core.UserCanister("The weather in Oslo?")], (WEATHER, CLOCK))
GROUNDING = Gate("grounding", -1.0)
CONFIDENCE = Gate("confidence", 2.0)


def call(index, name, arguments):
    raw = "{}" if not arguments else '{"city":"' + arguments["city"] + '"}'
    return [
        core.InvocationStarted(index, f"call_{index}", name, known=True),
        core.ArgumentsPiece(index, raw),
        core.InvocationEnded(index, f"call_{index}", name, arguments, raw),
    ]


def first_token(call, words):
    top = [{"token": "```", "logprob": math.log(call / 2)}, {"token": " {\n", "logprob": math.log(call / 2)}]
    top.append({"token": "To", "logprob": math.log(words)})
    return [core.Logprobs(({**top[0], "top_logprobs": top[1:]},)), core.Usage(9, 1)]


FAILED = [core.ReplyFailed("provider", "invalid_request", "logprobs is not supported")]


def judge(events, answer=None, gate=CONFIDENCE, request=REQUEST):
    """What passes at once, what is released, the question, and what is asked at last."""
    stage = create_gate(request, gate, gives_logprobs=True)
    passed = [out for event in events for out in stage.feed(event)]
    question = stage.question()
    assert (question is not None) == (answer is not None)
    if question is not None:
        stage.take_answer(answer)
    return passed, stage.release(), question, stage.answer_request()


OSLO = call(0, "weather", {"city": "Oslo"})
END = [core.Usage(20, 10), core.ReplyEnded("invocations")]


def test_a_value_that_nobody_said_and_that_may_be_left_out_is():
    described = {"properties": {"city": {"type": "string"}, "team": {"type": "string"}, "unit": {"enum": ["C"]}}}
    weather = core.ToolDeclaration("weather", "", {**described, "required": ["city"]})
    request = core.Request("m", REQUEST.canisters, (weather,))
    arguments = {"city": "Oslo", "team": "Lakers", "unit": "C"}
    events = [
        core.InvocationStarted(0, "call_0", "weather", known=True),
        core.ArgumentsPiece(0, '{"city":"Oslo","team":'),
        core.ArgumentsPiece(0, '"Lakers","unit":"C"}'),
        core.InvocationEnded(0, "call_0", "weather", arguments, '{"city":"Oslo","team":"Lakers","unit":"C"}'),
        *END,
    ]
    _, released, _, _ = judge(events, gate=GROUNDING, request=request)
    short = '{"city":"Oslo","unit":"C"}'
    note, *rest = released
    assert (note.kind, "team" in note.text) == ("dropped", True)
    assert rest == [
        events[0],
        core.ArgumentsPiece(0, short),
        core.InvocationEnded(0, "call_0", "weather", {"city": "Oslo", "unit": "C"}, short),
        *END,
    ]


def test_a_value_may_stand_in_a_picture():
    picture = core.PictureContent(b"x")
    request = core.Request("m", [core.UserCanister([core.TextualContent("The weather here?"), picture])], REQUEST.tools)
    assert judge([*OSLO, *END], gate=GROUNDING, request=request)[3] is None


def test_a_call_that_the_model_was_sure_of_passes():
    passed, released, question, answer = judge([core.ReplyStarted(), *OSLO, *END], first_token(0.98, 0.02))
    assert passed == [core.ReplyStarted()]
    assert released == [*OSLO, core.Usage(29, 11), core.ReplyEnded("invocations")]
    assert answer is None
    asked = question
    assert asked.canisters == REQUEST.canisters  # the same prompt again, for its first token
    assert asked.tools == REQUEST.tools
    assert asked.controls.max_tokens == 1


def test_a_call_that_it_hesitated_to_make_is_stopped():
    assert judge([*OSLO, *END], first_token(0.7, 0.3))[3] is not None


def test_a_sure_call_with_a_value_that_nobody_said_is_stopped_unless_it_was_very_sure():
    made_up = call(0, "weather", {"city": "Lima"})
    assert judge([*made_up, *END], first_token(0.95, 0.05))[3] is not None
    assert judge([*made_up, *END], first_token(0.999, 0.001))[3] is None


def test_the_calls_of_a_reply_share_its_confidence():
    _, _, question, answer = judge([*OSLO, *call(1, "clock", {}), *END], first_token(0.6, 0.4))
    assert question is not None
    assert answer is not None


def test_behind_words_the_values_decide():
    assert judge([core.TextPiece("I look it up: "), *OSLO, *END], gate=CONFIDENCE)[3] is None
    assert (
        judge([core.TextPiece("Well: "), *call(0, "weather", {"city": "Lima"}), *END], gate=CONFIDENCE)[3] is not None
    )


@table("answer", [[], [core.TextPiece("```")], [core.Logprobs(({"token": "```"},))], FAILED])
def test_without_log_probabilities_the_values_decide(answer):
    made_up = call(0, "weather", {"city": "Lima"})
    assert judge([*OSLO, *END], answer)[3] is None
    assert judge([*made_up, *END], answer)[3] is not None


@table(
    "events",
    [
        [core.TextPiece("It is cold."), core.Usage(1, 1), core.ReplyEnded("stop")],
        [
            OSLO[0],
            OSLO[1],
            core.InvocationIncomplete(0, "call_0", "weather", '{"ci', why="length"),
            core.ReplyEnded("length"),
        ],
        [*OSLO, core.ReplyFailed("provider", "network", "Gone")],
    ],
)
def test_where_there_is_nothing_to_judge_all_passes(events):
    passed, released, _, answer = judge(events)
    assert [*passed, *released] == events
    assert answer is None


def test_mistakes_pass_so_that_the_model_is_told_of_them():
    unknown = core.InvocationEnded(0, "call_0", "snow", {}, "{}")
    broken = core.InvocationEnded(1, "call_1", "weather", None, "{")
    _, released, _, answer = judge([unknown, broken, *END])
    assert released[:2] == [unknown, broken]
    assert answer is None


@table(
    "request_",
    [
        core.Request("m", REQUEST.canisters),
        core.Request("m", REQUEST.canisters, REQUEST.tools, tool_choice="required"),
        core.Request("m", REQUEST.canisters, REQUEST.tools, tool_choice=core.NamedTool("weather")),
        core.Request(
            "m", [*REQUEST.canisters, core.ResultCanister(invocation_id="call_0", content="Cold")], REQUEST.tools
        ),
    ],
)
def test_what_was_asked_for_is_not_judged(request_):
    assert create_gate(request_, CONFIDENCE, gives_logprobs=True) is None
    assert create_gate(REQUEST, Gate(), gives_logprobs=True) is None


def test_a_stopped_reply_becomes_an_answer_without_tools():
    _, released, _, answer = judge([core.ReplyStarted(), *OSLO, *END], first_token(0.7, 0.3))
    (note,) = released
    assert (note.kind, note.code) == ("dropped", "stopped_call")
    assert answer.tools == ()
    assert answer.canisters == REQUEST.canisters


def test_of_two_calls_one_is_stopped():
    events = [*call(0, "weather", {"city": "Lima"}), *call(1, "clock", {}), *END]
    _, released, _, answer = judge(events, gate=GROUNDING)
    assert answer is None
    assert [event for event in released if isinstance(event, core.InvocationEnded)] == [
        core.InvocationEnded(0, "call_1", "clock", {}, "{}")
    ]
    assert released[-1] == core.ReplyEnded("invocations")


def test_a_value_that_nobody_said_stops_a_call():
    assert judge([*call(0, "weather", {"city": "Lima"}), *END], gate=GROUNDING)[3] is not None
    assert judge([*OSLO, *END], gate=GROUNDING)[3] is None


@table(
    "tokens",
    [
        ({},),
        ({"token": 3, "logprob": "x", "top_logprobs": [1, {"token": None}]},),
        ({"token": "{", "logprob": -int("9" * 400), "top_logprobs": []},),
        ({"token": "{", "logprob": math.nan, "top_logprobs": [{"token": "To", "logprob": -math.inf}]},),
    ],
)
def test_odd_log_probabilities_are_no_answer(tokens):
    assert read_confidence([core.Logprobs(tokens)]) is None
