from __future__ import annotations

import json

import pytest

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


def test_the_dialect_that_is_spoken(invoke):
    spoken = "<tool_call>\n<function=search>\n<parameter=query>\nö\n</parameter>\n</function>\n</tool_call>"
    told = json.loads(invoke("parse", input=spoken).stdout)
    assert (told["dialect"], told["invocations"][0]["arguments"]) == ("qwen3_coder", {"query": "ö"})
    assert json.loads(invoke("parse", input="no call").stdout)["dialect"] == "auto"
    assert json.loads(invoke("parse", "--dialect", "Hermes", input="no call").stdout)["dialect"] == "hermes"


def test_a_dialect_that_is_asked_for(invoke):
    told = json.loads(invoke("parse", "--dialect", "hermes", input=FENCED).stdout)
    assert (told["text"], told["invocations"]) == (FENCED, [])


@pytest.mark.parametrize(
    ("flags", "reasoning", "text"), [([], "", "hm. No."), (["--start-in-reasoning"], "hm.", "No.")]
)
def test_text_that_begins_in_reasoning(invoke, flags, reasoning, text):
    told = json.loads(invoke("parse", *flags, input="hm.</think> No.").stdout)
    assert (told["reasoning"], told["text"]) == (reasoning, text)


def test_commands_by_their_flags(invoke, tmp_path):
    (tmp_path / "tools.json").write_text(json.dumps([{**TOOLS[0], "cli": {"-q": "query"}}]))
    flags = ["--tools", str(tmp_path / "tools.json"), "--dialect", "markdown_bash"]
    told = json.loads(invoke("parse", *flags, input="```bash\nsearch -q tides\n```").stdout)
    assert [call["arguments"] for call in told["invocations"]] == [{"query": "tides"}]


def test_a_name_that_no_tool_has(invoke, tmp_path):
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    text = '<tool_call>{"name": "delete", "arguments": {}}</tool_call>'
    told = json.loads(invoke("parse", "--tools", str(tmp_path / "tools.json"), input=text).stdout)
    assert [(call["name"], call["known"]) for call in told["invocations"]] == [("delete", False)]


def test_what_was_done_on_the_way(invoke):
    told = json.loads(invoke("parse", input=FENCED.replace("\n```\nDone", "\nI hope.\n```\nDone")).stdout)
    assert told["notes"] == [{"kind": "dropped", "text": "after the call in its block: I hope."}]


def test_the_action_dialect(invoke):
    text = '{"action": {"scratchpad": "hm"}}\n{"action": {"tool": "search", "arguments": {"query": "x"}}}'
    told = json.loads(invoke("parse", "--dialect", "action", input=text).stdout)
    assert told["reasoning"] == "hm"
    assert [call["name"] for call in told["invocations"]] == ["search"]


def test_a_file_and_its_tools(invoke, tmp_path):
    (tmp_path / "reply.txt").write_text(FENCED + FENCED.replace("search", "delete"))
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    result = invoke("parse", str(tmp_path / "reply.txt"), "--tools", str(tmp_path / "tools.json"))
    told = json.loads(result.stdout)
    # A name that no tool has stays text.
    assert [call["name"] for call in told["invocations"]] == ["search"]
    assert '"delete"' in told["text"]


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_pieces_give_the_same(invoke, chunk):
    whole = invoke("parse", input=FENCED).stdout
    assert invoke("parse", "--chunk", str(chunk), input=FENCED).stdout == whole


@pytest.mark.parametrize(("reason", "why"), [("length", "length"), ("stop", "stop")])
def test_a_call_that_was_cut(invoke, reason, why):
    text = '```json\n{"name": "search", "arguments": {"query": "ö'
    told = json.loads(invoke("parse", "--reason", reason, input=text).stdout)
    (call,) = told["invocations"]
    assert (call["complete"], call["arguments"]) == (False, None)
    events = invoke("parse", "--reason", reason, "--stream", input=text).stdout.splitlines()
    assert [json.loads(line)["why"] for line in events if "incomplete" in line] == [why]


def test_stream_is_one_event_a_line(invoke):
    lines = invoke("parse", "--stream", input=FENCED).stdout.splitlines()
    assert [decode_event(line) for line in lines] == parse(FENCED)
    assert lines == [encode_line(event).decode() for event in parse(FENCED)]


@pytest.mark.parametrize("text", ["", "plain", "\xff", "{" * 1000])
def test_text_without_calls_stays_text(invoke, text):
    told = json.loads(invoke("parse", input=text).stdout)
    assert (told["text"], told["invocations"]) == (text, [])


def test_bytes_that_are_no_text(invoke):
    assert json.loads(invoke("parse", input=b"a \xff b").stdout)["text"] == "a \ufffd b"


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
