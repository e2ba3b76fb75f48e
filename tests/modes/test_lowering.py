from tests.tables import table

from callboard.core import (
    AssistantCanister,
    Constraint,
    InvocationCanister,
    InvocationEnded,
    NamedTool,
    ReasoningContent,
    Request,
    ResultCanister,
    SupervisorCanister,
    TextualContent,
    ToolDeclaration,
    UserCanister,
    error_result,
)
from callboard.dialects import ACTION, JSON, parse
from callboard.modes import MODES, Plan, lower_request, select_dialect
from callboard.modes.lowering import action_constraint
from callboard.schema import compile_schema

F = ToolDeclaration("f", "Does it.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
ASKED = (UserCanister("Do it."),)
CALLED = (
    *ASKED,
    AssistantCanister("I will."),
    InvocationCanister("c", "f", {"a": 1}),
    ResultCanister(invocation_id="c", content="2"),
)


def ask(canisters, **changes):
    return Request("m", canisters, (F,), **changes)


def kinds_and_texts(request):
    return [(type(each).__name__.removesuffix("Canister"), each.text) for each in request.canisters]


def test_native_sends_what_it_was_given():
    request = ask(CALLED)
    assert lower_request(request, Plan(MODES["native"], JSON)) is request


THOUGHT = ReasoningContent("Look it up.")
CALL = '"tool": "f", "arguments": {"a":1}'


@table(
    ("turn", "shown"),
    [
        ([AssistantCanister((THOUGHT,))], '{"action": {"scratchpad": "Look it up."}}'),
        ([AssistantCanister("It is 2.")], '{"action": {"answer": "It is 2."}}'),
        ([AssistantCanister("2")], '{"action": {"answer": "2"}}'),
        (
            [AssistantCanister((THOUGHT, TextualContent("It is 2.")))],
            '{"action": {"scratchpad": "Look it up.", "answer": "It is 2."}}',
        ),
        ([AssistantCanister("I "), AssistantCanister("see.")], '{"action": {"answer": "I see."}}'),
        ([AssistantCanister('{"foo": 1}')], '{"foo": 1}'),  # what was no answer, as the model wrote it
    ],
)
def test_structured_shows_what_was_said_as_one_object(turn, shown):
    lowered = lower_request(ask((*ASKED, *turn, UserCanister("And?"))), Plan(MODES["structured"], ACTION))
    assert kinds_and_texts(lowered)[1:] == [("User", "Do it."), ("Assistant", shown), ("User", "And?")]


@table(
    ("content", "shown"),
    [
        ((), f'{{"action": {{{CALL}}}}}'),
        ((THOUGHT,), f'{{"action": {{"scratchpad": "Look it up.", {CALL}}}}}'),
        ((THOUGHT, TextualContent("I will.")), f'{{"action": {{"scratchpad": "Look it up.\\n\\nI will.", {CALL}}}}}'),
    ],
)
def test_structured_shows_a_call_and_what_was_said_beside_it_as_one_object(content, shown):
    said_beside = [AssistantCanister(content)] if content else []
    lowered = lower_request(ask((*ASKED, *said_beside, *CALLED[2:])), Plan(MODES["structured"], ACTION))
    assert kinds_and_texts(lowered)[2:] == [("Assistant", shown), ("User", "Tool 1 (f) output:\n2")]
    events = parse(shown, (F,), "action")
    assert [each.arguments for each in events if isinstance(each, InvocationEnded)] == [{"a": 1}]


def test_structured_shows_one_call_at_a_time_with_its_result():
    calls = [InvocationCanister(f"c{number}", "f", {"a": number}) for number in range(3)]
    results = [ResultCanister(invocation_id=f"c{number}", content=str(number)) for number in (1, 0)]
    lowered = lower_request(ask((*ASKED, *calls, *results, UserCanister("And?"))), Plan(MODES["structured"], ACTION))
    assert [text for _, text in kinds_and_texts(lowered)[2:]] == [
        '{"action": {"tool": "f", "arguments": {"a":0}}}',
        "Tool 1 (f) output:\n0",
        '{"action": {"tool": "f", "arguments": {"a":1}}}',
        "Tool 1 (f) output:\n1",
        '{"action": {"tool": "f", "arguments": {"a":2}}}',
        "Tool 1 (f) error: the call was not run",
        "And?",
    ]


def test_structured_keeps_a_result_of_no_call():
    orphan = ResultCanister(invocation_id="x", content="2")
    lowered = lower_request(ask((orphan, UserCanister("And?"))), Plan(MODES["structured"], ACTION))
    assert kinds_and_texts(lowered)[1:] == [("User", "Tool 1 output:\n2"), ("User", "And?")]


def test_structured_shows_an_answer_of_a_schema_as_the_value_that_it_is():
    request = ask((*ASKED, AssistantCanister('{"n": 2}'), UserCanister("And?")), constraint=ANSWER)
    lowered = lower_request(request, Plan(MODES["structured"], ACTION))
    assert kinds_and_texts(lowered)[2] == ("Assistant", '{"action": {"answer": {"n":2}}}')
    validator = compile_schema(lowered.constraint.schema)
    assert validator.validate({"action": {"answer": {"n": 2}}})


@table("mode", ["validated", "parsed"])
def test_tools_calls_and_results_stand_in_text(mode):
    lowered = lower_request(ask((SupervisorCanister("Be brief."), *CALLED)), Plan(MODES[mode], JSON))
    assert (lowered.tools, lowered.constraint) == ((), None)
    (_, supervisor), *rest = kinds_and_texts(lowered)
    assert supervisor.startswith("Be brief.\n\nYou can call these tools:\n")
    assert '"name":"f"' in supervisor
    assert rest == [
        ("User", "Do it."),
        ("Assistant", 'I will.\n\n```json\n{"name": "f", "arguments": {"a":1}}\n```'),
        ("User", "Tool 1 (f) output:\n2"),
    ]


def test_the_beginning_stays_the_same_while_the_conversation_grows():
    plan = Plan(MODES["validated"], JSON)
    assert lower_request(ask(CALLED), plan).canisters[:2] == lower_request(ask(ASKED), plan).canisters


@table("mode", ["structured", "validated", "parsed"])
def test_what_a_client_sent_with_fields_of_its_own_stays_whole(mode):
    """Anthropic's block, or where its cache ends."""
    kept = TextualContent("kept", extra={"messages": {"type": "odd"}})
    canisters = (SupervisorCanister((kept,)), UserCanister((kept,)), ResultCanister(invocation_id="c", content="2"))
    (_, *instructed), (_, *asked) = [
        ("", *each.content) for each in lower_request(ask(canisters), Plan(MODES[mode], JSON)).canisters
    ]
    assert (instructed[0], asked[0]) == (kept, kept)
    assert instructed[1].text.startswith("You can call these tools")
    assert "2" in asked[1].text


def test_structured_constrains_the_reply():
    lowered = lower_request(ask(ASKED), Plan(MODES["structured"], ACTION))
    assert lowered.tools == ()
    variants = lowered.constraint.schema["properties"]["action"]["anyOf"]
    assert [list(each["properties"]) for each in variants] == [["tool", "arguments"], ["answer"], ["scratchpad"]]
    assert variants[0]["properties"]["arguments"] == F.schema


@table(
    ("choice", "names"),
    [
        ("auto", ["f", "g", "answer", "scratchpad"]),
        ("required", ["f", "g"]),
        (NamedTool("g"), ["g"]),
        ("none", ["answer"]),
    ],
)
def test_the_choice_of_tools_narrows_the_constraint(choice, names):
    schema = action_constraint((F, ToolDeclaration("g")), choice).schema
    variants = [each["properties"] for each in schema["properties"]["action"]["anyOf"]]
    assert [each["tool"]["enum"][0] if "tool" in each else next(iter(each)) for each in variants] == names


def test_definitions_of_tools_do_not_meet():
    tree = {
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/N"}},
        "$defs": {"N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}},
        "shared": [{"$ref": "#/$defs/N"}],
    }
    schema = action_constraint((ToolDeclaration("f", schema=tree), ToolDeclaration("g", schema=tree)), "auto").schema
    assert {name: part["$defs"] for name, part in schema["$defs"].items()} == {
        owner: {"N": {"type": "object", "properties": {"next": {"$ref": f"#/$defs/{owner}/$defs/N"}}}}
        for owner in ("f", "g")
    }
    assert all(schema["$defs"][owner]["shared"] == [{"$ref": f"#/$defs/{owner}/$defs/N"}] for owner in ("f", "g"))
    assert compile_schema(schema).validate({"action": {"tool": "g", "arguments": {"n": {"next": {}}}}})


PROSE = Plan(MODES["native"], JSON, in_prose=True)


def test_prose_tells_the_call_and_its_result_to_the_one_who_asked():
    lowered = lower_request(ask(CALLED, tool_choice="none"), PROSE)
    assert lowered.tools == ()
    assert kinds_and_texts(lowered) == [
        ("User", "Do it.\n\nf(a=1) returned 2.\n\nUse this to answer the question in one short sentence.")
    ]


def test_prose_of_a_failed_call_leaves_the_tools():
    failed = (*ASKED, InvocationCanister("c", "f", {}), error_result("c", "validation", "a is missing"))
    lowered = lower_request(ask(failed), PROSE)
    assert lowered.tools == (F,)
    assert kinds_and_texts(lowered) == [("User", "Do it.\n\nf() failed: Error: a is missing")]


def test_prose_leaves_a_conversation_without_calls_alone():
    request = ask(ASKED)
    assert lower_request(request, PROSE) is request


def test_prose_goes_on_after_an_answer():
    again = (*CALLED, AssistantCanister("It is 2."), UserCanister("And now?"))
    assert kinds_and_texts(lower_request(ask(again), PROSE)) == [
        ("User", "Do it.\n\nf(a=1) returned 2."),
        ("Assistant", "It is 2."),
        ("User", "And now?"),
    ]


@table(
    ("plan", "choice", "tools", "dialect"),
    [
        (Plan(MODES["native"], watched=JSON), "auto", (F,), JSON),
        (Plan(MODES["native"], watched=JSON), "none", (F,), None),
        (Plan(MODES["native"], watched=JSON), "auto", (), None),
        (Plan(MODES["native"]), "auto", (F,), None),
        (Plan(MODES["structured"], ACTION, ACTION), "none", (F,), ACTION),
        (Plan(MODES["structured"], ACTION, ACTION), "auto", (), None),
        (Plan(MODES["structured"], ACTION, ACTION, in_prose=True), "none", (F,), None),
    ],
)
def test_text_is_watched_where_the_model_may_speak_in_it(plan, choice, tools, dialect):
    assert select_dialect(Request("m", ASKED, tools, tool_choice=choice), plan) == dialect


ANSWER = Constraint("answer", {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "$defs": {"N": {}}})


@table(
    ("plan", "choice", "tools", "kept"),
    [
        (Plan(MODES["native"], supports_json_schema=True), "auto", (), True),
        (Plan(MODES["native"], supports_json_schema=True), "auto", (F,), False),
        (Plan(MODES["native"], supports_json_schema=True), "none", (F,), True),
        (Plan(MODES["native"]), "auto", (), False),
    ],
)
def test_an_answer_is_held_to_its_schema_where_that_can_be(plan, choice, tools, kept):
    lowered = lower_request(Request("m", ASKED, tools, tool_choice=choice, constraint=ANSWER), plan)
    assert (lowered.constraint == ANSWER) is kept


def test_in_structured_mode_the_answers_schema_is_one_of_the_actions():
    plan = Plan(MODES["structured"], ACTION, supports_json_schema=True)
    schema = lower_request(ask(ASKED, constraint=ANSWER), plan).constraint.schema
    answer = schema["properties"]["action"]["anyOf"][1]["properties"]["answer"]
    assert answer == {"$ref": "#/$defs/answer"}
    assert schema["$defs"]["answer"]["properties"]["n"] == {"$ref": "#/$defs/answer/$defs/N"}
