import json

import pytest
from tests.tables import table

from callboard.core import decode_event, encode_line
from callboard.dialects import parse
from callboard.errors import CallerError

FENCED = 'Let me see.\n```json\n{"name": "search", "arguments": {"query": "ö"}}\n```\nDone.'
TOOLS = [{"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}]


def test_the_calls_of_a_text(invoke):
    result = invoke("parse", input=FENCED)
    assert (result.exit_code, result.stderr) == (0, "")
    told = json.loads(result.stdout)
    (call,) = told.pop("invocations")
    assert (call["name"], call["arguments"], call["complete"]) == ("search", {"query": "ö"}, True)
    assert call["raw"] == '{"query": "ö"}'
    assert (told["text"].split(), told["reasoning"], told["dialect"]) == (["Let", "me", "see.", "Done."], "", "json")


SPOKEN = "<tool_call>\n<function=search>\n<parameter=query>\nö\n</parameter>\n</function>\n</tool_call>"
ACTION = '{"action": {"scratchpad": "hm"}}\n{"action": {"tool": "search", "arguments": {"query": "x"}}}'
DELETE = '<tool_call>{"name": "delete", "arguments": {}}</tool_call>'


def summary(told):
    """The parts that a row of the table may name."""
    calls = told["invocations"]
    return told | {
        "names": [each["name"] for each in calls],
        "arguments": [each["arguments"] for each in calls],
        "known": [each["known"] for each in calls],
    }


@table(
    ("arguments", "text", "expected"),
    [
        ((), SPOKEN, {"dialect": "qwen3_coder", "arguments": [{"query": "ö"}]}),
        ((), "no call", {"dialect": "auto"}),
        (("--dialect", "Hermes"), "no call", {"dialect": "hermes"}),
        (("--dialect", "hermes"), FENCED, {"text": FENCED, "names": []}),
        ((), "hm.</think> No.", {"reasoning": "", "text": "hm. No."}),
        (("--start-in-reasoning",), "hm.</think> No.", {"reasoning": "hm.", "text": "No."}),
        (
            ("--tools", "flags.json", "--dialect", "markdown_bash"),
            "```bash\nsearch -q tides\n```",
            {"arguments": [{"query": "tides"}]},
        ),
        (("--tools", "tools.json"), DELETE, {"names": ["delete"], "known": [False]}),
        (
            (),
            FENCED.replace("\n```\nDone", "\nI hope.\n```\nDone"),
            {"notes": [{"kind": "dropped", "text": "after the call in its block: I hope."}]},
        ),
        (("--dialect", "action"), ACTION, {"reasoning": "hm", "names": ["search"]}),
        *[((), text, {"text": text, "names": []}) for text in ("", "plain", "\xff", "{" * 1000)],
        ((), b"a \xff b", {"text": "a \ufffd b"}),
    ],
)
def test_options_and_texts(invoke, tmp_path, arguments, text, expected):
    (tmp_path / "flags.json").write_text(json.dumps([{**TOOLS[0], "cli": {"-q": "query"}}]))
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    paths = [str(tmp_path / each) if each.endswith(".json") else each for each in arguments]
    told = summary(json.loads(invoke("parse", *paths, input=text).stdout))
    assert {key: told[key] for key in expected} == expected


def test_a_file_and_its_tools(invoke, tmp_path):
    (tmp_path / "reply.txt").write_text(FENCED + FENCED.replace("search", "delete"))
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    result = invoke("parse", str(tmp_path / "reply.txt"), "--tools", str(tmp_path / "tools.json"))
    told = json.loads(result.stdout)
    # A name that no tool has stays text.
    assert [call["name"] for call in told["invocations"]] == ["search"]
    assert '"delete"' in told["text"]


@table("chunk", [1, 3, 1000])
def test_pieces_give_the_same(invoke, chunk):
    whole = invoke("parse", input=FENCED).stdout
    assert invoke("parse", "--chunk", str(chunk), input=FENCED).stdout == whole


@table("reason", ["length", "stop"])
def test_a_call_that_was_cut(invoke, reason):
    text = '```json\n{"name": "search", "arguments": {"query": "ö'
    told = json.loads(invoke("parse", "--reason", reason, input=text).stdout)
    (call,) = told["invocations"]
    assert (call["complete"], call["arguments"]) == (False, None)
    events = invoke("parse", "--reason", reason, "--stream", input=text).stdout.splitlines()
    assert [json.loads(line)["why"] for line in events if "incomplete" in line] == [reason]


def test_stream_is_one_event_a_line(invoke):
    lines = invoke("parse", "--stream", input=FENCED).stdout.splitlines()
    assert [decode_event(line) for line in lines] == parse(FENCED)
    assert lines == [encode_line(event).decode() for event in parse(FENCED)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.txt"], "nowhere.txt: No such file or directory"),
        (["--dialect", "hermse"], "no dialect 'hermse'; did you mean 'hermes'"),
        (["--dialect", "x"], "no dialect 'x'; there are auto, json, "),
        (["--tools", "nowhere.json"], "nowhere.json: No such file or directory"),
        (["--tools", "broken.json"], "broken.json: not a list of tools: "),
        (["--tools", "object.json"], "object.json: not a list of tools: Expected `array`, got `object`; write [{name"),
        (["--tools", "number.json"], "number.json: not a list of tools: Expected `str`, got `int` - at `$[0].name`"),
        (["--tools", "flags.json"], "flags.json: not a list of tools: Expected `object`, got `array` - at `$[0].cli`"),
        (["--tools", "deep.json"], "deep.json: not a list of tools: "),
        (["--tools", "-"], "the text and the tools cannot both come from standard input"),
    ],
)
def test_what_a_person_gets_wrong(invoke, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("[{")
    (tmp_path / "object.json").write_text('{"name": "search"}')
    (tmp_path / "number.json").write_text('[{"name": 3}]')
    (tmp_path / "flags.json").write_text('[{"name": "search", "cli": ["-q"]}]')
    (tmp_path / "deep.json").write_text('[{"name": "a", "parameters": {"a": ' + "[" * 100_000)
    result = invoke("parse", *arguments, input="text")
    assert result.exit_code == 1
    assert isinstance(result.exception, CallerError)
    assert str(result.exception).startswith(message)


def test_a_wrong_option_is_wrong_usage(invoke):
    assert invoke("parse", "--chunk", "-1", input="").exit_code == 2
    assert invoke("parse", "--reason", "boredom", input="").exit_code == 2
