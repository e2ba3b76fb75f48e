"""What content spans have where it is asked for: by the conventions' own test cases, masked, and bounded."""

import json
from functools import cache
from pathlib import Path

import jsonschema_rs
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.core import (
    AssistantCanister,
    DocumentCanister,
    FileContent,
    InvocationCanister,
    PictureContent,
    ReasoningContent,
    RefusalContent,
    ResultCanister,
    SupervisorCanister,
    ToolDeclaration,
    UserCanister,
)
from callboard.telemetry.content import (
    encode_definitions,
    encode_messages,
    encode_object,
    encode_reply,
    encode_result,
    to_json,
)

VECTORS = Path(__file__).parents[1] / "vectors/telemetry"
FILE = json.loads((VECTORS / "cases.json").read_text("utf-8"))
CASES = {each["case"]: each for each in FILE["cases"]}
LIMIT = 10_000
CALL = InvocationCanister("call_VSPygqKTWdrhaFErNvMV18Yl", "get_weather", {"location": "Paris"}, "")
WEATHER = CASES["tool-definitions-function-and-builtin-tools"]["document"][0]


def schema(name):
    path = VECTORS / f"gen-ai-{name}.json"
    if not path.exists():
        return {"type": "object"}
    # The schema of schemas is not fetched.
    return json.loads(
        path.read_text("utf-8").replace('"$ref": "http://json-schema.org/draft-07/schema#"', '"type": "object"')
    )


@cache
def validator(name):
    return jsonschema_rs.validator_for(schema(name))


def is_valid(name, document):
    return validator(name).is_valid(document)


@table("case", FILE["cases"], ids=CASES)
def test_the_schemas_are_those_of_the_cases(case):
    assert is_valid(case["schema"], case["document"]) == case["valid"]


@table(
    ("case", "made"),
    [
        (
            "input-messages-text-messages",
            encode_messages(
                [SupervisorCanister("You are a helpful bot"), UserCanister("Tell me a joke about OpenTelemetry")], LIMIT
            ),
        ),
        (
            "input-messages-tool-call-round-trip",
            encode_messages(
                [
                    UserCanister("What's the weather in Paris?"),
                    CALL,
                    ResultCanister("rainy, 57°F", invocation_id=CALL.identifier),
                ],
                LIMIT,
            ),
        ),
        (
            "output-messages-assistant-text",
            encode_reply(
                [AssistantCanister(CASES["output-messages-assistant-text"]["document"][0]["parts"][0]["content"])],
                "stop",
                LIMIT,
            ),
        ),
        (
            "tool-call-arguments-object",
            encode_object({"location": "Paris", "unit": "celsius", "days": 3}, LIMIT),
        ),
        (
            "tool-call-result-object",
            encode_result(
                ResultCanister('{"temperature":57,"unit":"F","conditions":["rainy"]}', invocation_id="1"), LIMIT
            ),
        ),
    ],
)
def test_what_is_encoded_is_the_document_of_a_case(case, made):
    assert made == CASES[case]["document"]
    assert CASES[case]["valid"]


def test_a_tools_definition():
    tool = ToolDeclaration(WEATHER["name"], WEATHER["description"], WEATHER["parameters"])
    assert encode_definitions([tool], LIMIT) == [WEATHER]


def test_every_content_is_a_part_of_the_schema():
    content = [
        ReasoningContent("hm"),
        "yes",
        RefusalContent("no"),
        PictureContent(b"123"),
        PictureContent(url="https://example.com/a.png"),
        FileContent(url="data:text/plain,abc"),
    ]
    said = [UserCanister(content), DocumentCanister("text", "title"), AssistantCanister(content), CALL]
    messages = encode_messages(said, LIMIT)
    assert is_valid("input-messages", messages)
    assert [each["role"] for each in messages] == ["user", "user", "assistant"]
    assert "123" not in to_json(messages)
    assert is_valid("output-messages", encode_reply([AssistantCanister(content), CALL], "stop", LIMIT))


def test_a_result_that_is_no_object_is_its_content():
    assert encode_result(ResultCanister("[1]", invocation_id="1"), LIMIT) == {"content": "[1]"}
    assert encode_result(ResultCanister("{broken", invocation_id="1"), LIMIT) == {"content": "{broken"}


@given(st.lists(st.text(max_size=400), max_size=30), st.integers(1, 2000))
def test_content_is_bounded_and_the_newest_stays(texts, limit):
    messages = encode_messages([UserCanister(each or "-") for each in texts], limit)
    assert len(json.dumps(messages, ensure_ascii=False)) <= 8 * (limit + 100)
    assert is_valid("input-messages", messages)
    if texts:
        assert messages[-1]["parts"][0]["content"][:1] == (texts[-1] or "-")[:1]


def test_a_million_messages_cost_what_few_do():
    said = [UserCanister("x" * 100)] * 1_000_000
    assert len(encode_messages(said, 1000)) < 20


@table(
    "canister",
    [
        UserCanister(["x"] * 50_000),
        UserCanister([PictureContent(b"x", mime_type="image/" + "p" * 100_000)]),
        InvocationCanister("c", "n", {"lists": [[]] * 50_000}, ""),
        InvocationCanister("c", "n", {"objects": [{}] * 50_000}, ""),
        InvocationCanister("c", "n", {f"{number:_>200}": None for number in range(1000)}, ""),
    ],
    ids=["parts", "a type", "lists", "objects", "keys"],
)
def test_what_holds_little_text_is_bounded_as_well(canister):
    assert len(to_json(encode_messages([canister], 1000))) < 3000
    assert len(to_json(encode_reply([canister] * 1000, "stop", 1000))) < 3000


def test_secrets_are_masked_before_a_text_is_cut():
    secret = "sk-abcdefghijklmnopqrstuvwxyz0123456789"
    for limit in range(1, 80):
        text = to_json(encode_object({"note": f"the key is {secret}", "deep": [[{"password": "hunter2!"}]]}, limit))
        assert "sk-abc" not in text
        assert "hunter2" not in text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.integers(0, 500))
def test_whatever_a_model_writes_is_encoded(arguments, limit):
    arguments = {**arguments, "\ud800": "\udfff", "large": 10**5000}
    json.loads(to_json(encode_object(arguments, limit)))
    call = InvocationCanister("\ud800", "\udfff", arguments, "")
    picture = PictureContent(b"1", mime_type="image/\ud800")
    json.loads(to_json(encode_messages([UserCanister([picture]), call], limit)))
    json.loads(to_json(encode_messages([ResultCanister("\ud800", invocation_id="\ud800")], limit)))


def test_what_is_too_deep_is_left_out():
    deep = []
    for _ in range(2000):
        deep = [deep]
    assert len(to_json(encode_object({"deep": deep}, LIMIT))) < 100


@table("name", ["password", "apiKey", "x-api-key", "accessToken", "clientSecret", "Authorization"])
def test_a_field_is_masked_by_its_name_however_that_is_spelled(name):
    assert encode_object({name: "hunter2!", "max_tokens": 5, "tokenizer": "x"}, 1000) == {
        name: "***",
        "max_tokens": 5,
        "tokenizer": "x",
    }
