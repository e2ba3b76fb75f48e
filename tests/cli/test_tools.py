from __future__ import annotations

import json

import pytest

from callboard.errors import CallerError, NoSuchTool, ToolDefinitionError

HEAD = "from callboard import Ensemble, tool\n"


def test_list(invoke, toolbox):
    result = invoke("tools", "list", "--tools", toolbox)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "multiply(a, [b])\n    Multiply two whole numbers.\ndeploy()\n    Deploy it.\nshout(text)\n    Shout it.\n"
    )


def test_list_as_json(invoke, toolbox):
    multiply, deploy, shout = json.loads(invoke("tools", "list", "--tools", toolbox, "--json").stdout)
    assert [each["name"] for each in (multiply, deploy, shout)] == ["multiply", "deploy", "shout"]
    assert multiply == {
        "name": "multiply",
        "description": "Multiply two whole numbers.\n\nExactly.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 7}},
            "required": ["a"],
            "additionalProperties": False,
        },
    }


@pytest.mark.parametrize(
    ("specifications", "names"),
    [
        (["toolbox.py:multiply"], ["multiply"]),
        (["toolbox.py:plain"], ["plain"]),
        (["toolbox.py:some"], ["multiply", "plain"]),
        (["toolbox.py:group"], ["shout"]),
        (["toolbox.py:multiply", "toolbox.py:plain"], ["multiply", "plain"]),
        (["toolbox:multiply"], ["multiply"]),
        (["toolbox"], ["multiply", "deploy", "shout"]),
        (["os.path:basename"], None),
    ],
)
@pytest.mark.usefixtures("toolbox")
def test_ways_to_name_tools(invoke, tmp_path, monkeypatch, specifications, names):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    options = [option for each in specifications for option in ("--tools", each)]
    result = invoke("tools", "list", "--json", *options)
    if names is None:
        assert isinstance(result.exception, ToolDefinitionError)
    else:
        assert [each["name"] for each in json.loads(result.stdout)] == names


@pytest.mark.parametrize(
    ("specification", "message"),
    [
        ("nowhere.py", "nowhere.py: no such file"),
        (r"C:\x\nowhere.py", r"C:\x\nowhere.py: no such file"),
        (r"C:\x\nowhere.py:tool", r"C:\x\nowhere.py:tool: no such file"),
        ("nowhere", "nowhere: no module 'nowhere'; write module:attribute or file.py"),
        ("os.nowhere", "os.nowhere: no module 'os.nowhere'; write module:attribute or file.py"),
        ("toolbox.py:nothing", "toolbox.py:nothing: toolbox.py has no 'nothing'"),
        ("toolbox.py:number", "3 is not a tool; pass a function, a Tool or an Invoker"),
        ("empty.py", "empty.py: the module has no tools; decorate a function with @tool"),
        ("slip.py", "slip.py: line 2: "),
        ("needy.py", "needy.py: no module 'not_installed'; write module:attribute or file.py"),
        ("loose.py", "greet(name): has no annotation; say what it is: `name: str`"),
        ("", "no module is named; write module:attribute or file.py"),
        (":multiply", ":multiply: no module is named; write module:attribute or file.py"),
        (".toolbox", ".toolbox: no module is named; write module:attribute or file.py"),
    ],
)
@pytest.mark.usefixtures("toolbox")
def test_tools_that_are_not_there(invoke, tmp_path, monkeypatch, specification, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.py").write_text("answer = 42\n")
    (tmp_path / "slip.py").write_text("\ndef (:\n")
    (tmp_path / "needy.py").write_text("import not_installed\n")
    (tmp_path / "loose.py").write_text(HEAD + "@tool\ndef greet(name): ...\n")
    result = invoke("tools", "list", "--tools", specification)
    assert result.exit_code == 1
    assert isinstance(result.exception, CallerError)
    assert str(result.exception).startswith(message)
    assert "\n" not in str(result.exception)


def test_call(invoke, toolbox):
    result = invoke("tools", "call", "multiply", '{"a": "6"}', "--tools", toolbox)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "42\n", "")
    assert invoke("tools", "call", "deploy", "--tools", toolbox).stdout == "deployed\n"


def test_a_call_of_a_file_that_is_no_fixture(callboard, toolbox):
    result = callboard("tools", "call", "multiply", '{"a": 48213, "b": 9177}', "--tools", toolbox)
    assert (result.returncode, result.stdout, result.stderr) == (0, "442450701\n", "")
    wrong = callboard("tools", "call", "multiply", "{}", "--tools", toolbox)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == "Error: ArgValidationError: a\n  Field required\n"


@pytest.mark.parametrize(
    ("name", "arguments", "error", "message"),
    [
        ("multiplie", "{}", NoSuchTool, "no tool 'multiplie'; did you mean 'multiply'?"),
        ("multiply", "{a: 6}", CallerError, "arguments: not JSON: "),
        ("multiply", "[6]", CallerError, 'arguments: not a JSON object; write {"name": value}'),
    ],
)
def test_what_a_person_gets_wrong(invoke, toolbox, name, arguments, error, message):  # noqa: PLR0917 - two are fixtures
    result = invoke("tools", "call", name, arguments, "--tools", toolbox)
    assert result.exit_code == 1
    assert type(result.exception) is error
    assert str(result.exception).startswith(message)


def test_tools_have_to_be_named(invoke):
    assert invoke("tools", "list").exit_code == 2
