import re

from tests.tables import table

from callboard.core import InvocationCanister, UserCanister
from callboard.core.request import ToolDeclaration
from callboard.evaluation import Attempt, ExpectedCall, Step, Task, check_step

WEATHER = ToolDeclaration(
    "weather",
    "The weather.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "at": {"type": "array", "items": {"type": "number"}},
            "where": {"type": "object", "properties": {"street": {"type": "string"}}},
        },
        "required": ["city"],
    },
)
NOTE = ToolDeclaration("note", "", {"type": "object", "properties": {"text": {"type": "string"}}})
PING = ToolDeclaration("ping")
OSLO = ExpectedCall(
    "weather",
    {
        "city": ("Oslo", "Oslo, Norway"),
        "days": (3,),
        "unit": ("celsius", ""),
        "at": ([59, 10], ""),
        "where": ({"street": ["A", ""]}, ""),
    },
)
RIGHT = {"city": "oslo", "days": 3}


def call(name="weather", /, **arguments):
    return InvocationCanister("1", name, arguments)


def judge(*calls, expected=(OSLO,), text="", ending="stop", **step):
    task = Task("1", "mine", "one", (WEATHER, NOTE, PING), ())
    return check_step(task, Step((UserCanister("?"),), tuple(expected), **step), Attempt(calls, text, ending))


@table(
    "arguments",
    [
        RIGHT,
        {"city": "Oslo Norway", "days": 3, "unit": "CELSIUS"},
        {**RIGHT, "at": [59, 10]},
        {**RIGHT, "where": {"street": "a"}},
        {**RIGHT, "where": {}},
    ],
)
def test_a_call_is_right_in_each_way_that_is_accepted(arguments):
    assert judge(call(**arguments)).solved


MALFORMED = InvocationCanister("1", "weather", None, '{"city": ')


@table(
    ("calls", "label", "why"),
    [
        ([], "no_call", "got none"),
        ([call("note", text="Oslo")], "wrong_tool", "weather was to be called"),
        ([MALFORMED], "malformed_json", r'\{\\"city\\": '),
        ([call(**RIGHT, unit="kelvin")], "schema_violation", 'unit is "kelvin", not "celsius"'),
        ([call(**RIGHT, country="Norway")], "hallucinated_param", 'no argument "country"'),
        ([call(days=3)], "missing_required", "needs the argument city"),
        ([call(city="Oslo")], "missing_required", "argument days"),
        ([call(city="Oslo", days="3")], "type_coercion", 'days is "3", not 3'),
        ([call(city="Oslo", days=3.0)], "type_coercion", "wrong type"),
        ([call(city=["Oslo"], days=3)], "type_coercion", "wrong type"),
        ([call(**RIGHT, at=["59", "10"])], "type_coercion", "wrong type"),
        ([call(**RIGHT, at="[59, 10]")], "type_coercion", "wrong type"),
        ([call(**RIGHT, where='{"street": "A"}')], "type_coercion", "wrong type"),
        ([call(city='\\"Oslo\\"', days=3)], "escaping_error", "too often"),
        ([call(city="Oslo", days=4)], "schema_violation", "days is 4, not 3"),
        ([call(**RIGHT, where={"street": "B"})], "schema_violation", "where is"),
        ([call(**RIGHT), call(**RIGHT)], "should_not_have_called", "1 calls were to be made, and 2 were"),
    ],
)
def test_every_miss_has_a_label_and_a_reason(calls, label, why):
    judgement = judge(*calls)
    assert (judgement.solved, judgement.label) == (False, label)
    assert re.search(why, judgement.why), judgement.why


def test_where_no_call_may_be_made_every_call_is_one_too_many():
    assert judge(expected=()).solved
    for wrong in (call("ping"), MALFORMED):
        assert judge(wrong, expected=()).label == "should_not_have_called"


def test_a_reply_that_was_cut_is_a_truncation_unless_it_is_right():
    assert judge(call(**RIGHT), ending="length").solved
    assert judge(MALFORMED, ending="length").label == "truncation"
    assert judge(ending="length").label == "truncation"
    assert judge(call("ping"), expected=(), ending="length").label == "should_not_have_called"


def test_calls_at_once_may_come_in_any_order_unless_it_matters():
    ping = ExpectedCall("ping")
    calls = call("ping"), call(**RIGHT)
    assert judge(*calls, expected=(OSLO, ping)).solved
    assert not judge(*calls, expected=(OSLO, ping), ordered=True).solved
    assert judge(*calls, expected=(ping, OSLO), ordered=True).solved
    assert judge(call(**RIGHT), expected=(OSLO, ping)).label == "parallel_collapse"
    assert judge(call("ping"), call(city="Oslo", days=4), expected=(OSLO, ping)).label == "schema_violation"


def test_any_call_will_do_where_the_step_says_so():
    assert judge(call("note"), call("ping"), expected=(), any_call=True).solved
    assert judge(expected=(), any_call=True).label == "no_call"
    assert judge(MALFORMED, expected=(), any_call=True).label == "malformed_json"


@table(
    ("text", "label"),
    [
        ('He said "no".\nThen left.', ""),
        ('He said \\"no\\".\\nThen left.', "escaping_error"),
        ("He said &quot;no&quot;.\nThen left.", "escaping_error"),
        ('"He said "no".\nThen left."', "escaping_error"),
        ('he said "no".\nThen left.', "schema_violation"),
        (["He said"], "schema_violation"),
    ],
)
def test_a_text_that_has_to_arrive_verbatim_is_compared_to_the_letter(text, label):
    expected = ExpectedCall("note", {"text": ('He said "no".\nThen left.',)}, verbatim=("text",))
    judgement = judge(call("note", text=text), expected=(expected,))
    assert (judgement.solved, judgement.label) == (not label, label)


@table(
    ("text", "solved"),
    [
        ("It costs 1,250 euros in OSLO.", True),
        ("**1250** in Oslo", True),
        ("1250.", False),
        ("Oslo: 11250", False),
        ("Oslo: 1250.5", False),
        ("Oslo: 1,250,000", False),
        ("", False),
    ],
)
def test_the_answer_says_each_thing_in_one_of_its_spellings(text, solved):
    judgement = judge(text=text, expected=(), answer=(("1250", "1,250"), ("oslo",)))
    assert (judgement.solved, judgement.label) == (solved, "" if solved else "schema_violation")


def test_a_reply_that_failed_is_missed_without_a_label():
    task = Task("1", "mine", "one", (), ())
    judgement = check_step(task, Step(), Attempt(failure="connection refused"))
    assert (judgement.solved, judgement.label) == (False, "")
    assert "connection refused" in judgement.why


def test_values_that_are_nested_too_deep_are_no_crash():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert not judge(call(city="Oslo", days=deep)).solved
    assert not judge(call(**RIGHT, at=[deep])).solved
