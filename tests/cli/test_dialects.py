import json

import pytest

from callboard.core import InvocationEnded, ToolDeclaration
from callboard.dialects import DIALECTS, parse
from callboard.errors import CallerError


def test_each_has_an_example_that_is_a_call(invoke):
    result = invoke("dialects", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, [each["name"] for each in told]) == (0, list(DIALECTS))
    assert all(each["summary"] for each in told)
    tools = [
        ToolDeclaration("get_weather"),
        ToolDeclaration("bash", "", {"properties": {"command": {"type": "string"}}}),
    ]
    for each in told:
        events = parse(each["example"], tools, each["name"])
        assert len([event for event in events if isinstance(event, InvocationEnded)]) == 1, each


def test_the_list_for_people(invoke):
    text = invoke("dialects").stdout
    assert "hermes: JSON objects in `<tool_call>`" in text
    assert (
        '    <tool_call>\n    {"name": "get_weather", "arguments": {"city":"Oslo","days":2}}\n    </tool_call>' in text
    )
    assert all(f"{name}: " in text for name in DIALECTS)


@pytest.mark.parametrize("name", DIALECTS)
def test_one_in_full(invoke, name):
    result = invoke("dialects", name, "--json")
    assert result.exception is None
    told = json.loads(result.stdout)
    assert told["name"] == name
    assert told["calls"].count("Rome" if "Rome" in told["calls"] else "README.md") == 1
    assert "Two clear days." in told["result"] or "architecture.md" in told["result"]
    assert told["tools"].startswith("You can call these tools:")
    assert all(len(marks) == 2 for marks in told["reasoning"])


def test_one_for_people(invoke):
    text = invoke("dialects", "Qwen3-Coder").stdout
    assert text.startswith("qwen3_coder: ")
    titles = [line for line in text.splitlines() if line.startswith("== ")]
    assert titles == ["== a call", "== two calls", "== the result of the first", "== how a model is told"]
    assert "<parameter=city>\nOslo\n</parameter>" in text


def test_the_dialect_of_a_template(invoke, tmp_path):
    template = tmp_path / "chat_template.jinja"
    template.write_text(
        "{%- for call in message.tool_calls %}{{ '<tool_call>\\n<function=' + call.name + '><parameter=' }}"
    )
    assert invoke("dialects", "--template", str(template)).stdout == "qwen3_coder\n"
    told = json.loads(invoke("dialects", "--template", str(template), "--json").stdout)
    assert told["name"] == "qwen3_coder"
    assert invoke("dialects", "--template", "-", input="<|tool_calls_section_begin|>").stdout == "kimi_k2\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hermse"], "no dialect 'hermse'; did you mean 'hermes'"),
        (["--template", "nowhere.jinja"], "nowhere.jinja: No such file or directory"),
        (["--template", "plain.jinja"], "plain.jinja: the template shows no known dialect; "),
    ],
)
def test_what_a_person_gets_wrong(invoke, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain.jinja").write_text("{{ messages }}")
    result = invoke("dialects", *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert isinstance(result.exception, CallerError)
    assert str(result.exception).startswith(message)


def test_a_name_and_a_template_are_wrong_usage(invoke):
    assert invoke("dialects", "hermes", "--template", "x").exit_code == 2
