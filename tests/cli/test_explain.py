import json

import pytest

from callboard.errors import CallerError
from callboard.profiles import resolve


@pytest.mark.parametrize(
    ("model", "mode", "dialect", "watched"),
    [
        # Seed 001's table of models, as far as its modes go.
        ("openai:gpt-4o", "native", "json", None),
        ("claude-3-5-sonnet", "native", "json", None),
        ("llama-3-70b", "native", "llama3_json", "llama3_json, pythonic"),
        ("mistral-7b", "validated", "json", "json, mistral"),
        ("local:qwen2.5-coder-0.5b", "native", "json", "json, hermes, qwen25_coder"),
        ("local:smollm2-135m", "structured", "action", "action"),
        ("openai:mystery", "structured", "action", "action"),
        ("mystery", "validated", "json", "auto"),
    ],
)
def test_how_models_are_asked(invoke, model, mode, dialect, watched):
    result = invoke("explain", model, "--json")
    told = json.loads(result.stdout)
    assert (told["name"], told["mode"], told["dialect"], told["watched"]) == (model, mode, dialect, watched)
    assert all({"value", "source"} == each.keys() - {"evidence"} for each in told["facts"].values())


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("local:qwen2.5-coder-0.5b", "exact: counted by /apply-template, /tokenize of the endpoint"),
        ("anthropic:claude-sonnet-4-5", "exact: counted by /v1/messages/count_tokens of the endpoint"),
        ("gemini:gemini-2.5-pro", "exact: counted by :countTokens of the endpoint"),
        ("x", "estimated: 4 bytes a token; exact if the server's list of models is owned by llamacpp or vllm"),
    ],
)
def test_how_tokens_are_counted(invoke, model, told):
    assert f"tokens   {told}" in invoke("explain", model).stdout.splitlines()
    shown = json.loads(invoke("explain", model, "--json").stdout)
    assert f"{shown['tokens']}: {shown['tokens_why']}" == told


def test_what_is_sent_about_thinking(invoke):
    lines = invoke("explain", "ollama:qwen3:8b").stdout.splitlines()
    assert 'thinking none sends {"reasoning_effort": "none"}; high sends {"reasoning_effort": "high"}' in lines
    shown = json.loads(invoke("explain", "anthropic:claude-opus-4-5", "--json").stdout)["thinking"]
    assert (shown["none"], shown["low"]) == ({"thinking": {"type": "disabled"}}, {"output_config": {"effort": "low"}})


def test_a_fact_says_what_it_is_known_from(invoke):
    facts = json.loads(invoke("explain", "Qwen/Qwen3.6-27B", "--json").stdout)["facts"]
    assert (facts["merge_system_messages"]["value"], facts["merge_system_messages"]["source"]) == (
        True,
        "family qwen3.5",
    )
    assert "vllm#41114" in facts["merge_system_messages"]["evidence"]
    lines = invoke("explain", "deepseek-v4-pro").stdout.splitlines()
    (line,) = [line for line in lines if line.split()[:1] == ["requires_reasoning_history"]]
    assert line.split(maxsplit=2)[1:] == ["True", resolve("deepseek-v4-pro").known_from("requires_reasoning_history")]


def test_the_mode_of_the_settings_is_shown_as_a_run_takes_it(invoke, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "callboard/callboard.toml"
    path.parent.mkdir()
    path.write_text("mode = 'validated'\n[profiles.gpt-4o]\nmode = 'structured'")
    lines = invoke("explain", "openai:gpt-4o").stdout.splitlines()
    assert f"mode     validated: set by {path}" in lines
    monkeypatch.setenv("CALLBOARD_MODE", "parsed")
    told = json.loads(invoke("explain", "openai:gpt-4o", "--json").stdout)
    assert (told["mode"], told["why"]) == ("parsed", "set by CALLBOARD_MODE")
    told = json.loads(invoke("explain", "openai:gpt-4o", "--json", "--mode", "native").stdout)
    assert (told["mode"], told["why"]) == ("native", "asked for")


def test_evidence_is_shown_on_one_line(invoke, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "callboard/callboard.toml"
    path.parent.mkdir()
    evidence = r'"a\nb \u202e c"'
    path.write_text(
        f"[profiles.x]\nmode = 'native'\nmode_evidence = {evidence}\nwatch = 'json'\nwatch_evidence = {evidence}"
    )
    lines = invoke("explain", "x").stdout.splitlines()
    assert all(line.isprintable() for line in lines)
    assert len([line for line in lines if r"a\nb \u202e c" in line]) == 2


def test_every_fact_has_its_source(invoke):
    told = json.loads(invoke("explain", "local:qwen2.5-coder-0.5b", "--json").stdout)
    assert (told["provider"], told["model"], told["normalised"]) == (
        "local",
        "qwen2.5-coder-0.5b",
        "qwen2.5-coder-0.5b",
    )
    assert told["why"] == "the endpoint offers tools (default), and the model uses them (family qwen-coder)"
    assert told["facts"]["uses_tools"] == {"value": True, "source": "family qwen-coder"}
    assert told["facts"]["result_format"] == {"value": "prose", "source": "model qwen2.5-coder-0.5b"}
    assert told["facts"]["temperature"] == {"value": 0.0, "source": "endpoint local"}
    assert told["facts"]["context_tokens"]["value"] == 0
    assert told["facts"]["merge_system_messages"] == {"value": False, "source": "default"}


def test_for_people(invoke):
    lines = invoke("explain", "unsloth/Qwen3-Coder-30B-GGUF:Q4_K_M").stdout.splitlines()
    assert lines[:9] == [
        "model    unsloth/Qwen3-Coder-30B-GGUF:Q4_K_M (matched as qwen3-coder-30b)",
        "provider none named",
        "mode     native: the endpoint offers tools (default), and the model uses them (family qwen3-coder)",
        "dialect  qwen3_coder: how the model writes calls if the tools are in the prompt",
        (
            "watched  qwen3_coder: calls that the text is searched for (family qwen3-coder: it omits <tool_call>, so "
            "servers return its call as text)"
        ),
        "tokens   estimated: 4 bytes a token; exact if the server's list of models is owned by llamacpp or vllm",
        'thinking none sends {"reasoning_effort": "none"}; high sends {"reasoning_effort": "high"}',
        (
            'price    it is not known; write [prices."unsloth/Qwen3-Coder-30B-GGUF:Q4_K_M"] with input and output, '
            "in dollars a million tokens, into callboard.toml"
        ),
        "facts",
    ]
    assert "  uses_tools                 True                          family qwen3-coder" in lines


def test_a_text_that_nobody_watches(invoke):
    lines = invoke("explain", "openai:gpt-4o").stdout.splitlines()
    source = "family openai: its endpoint parses its calls; there is no report of a call in text"
    assert f"watched  nothing: the text is not searched ({source})" in lines


@pytest.mark.parametrize(
    ("model", "mode", "why"),
    [
        ("mystery", "", "nothing is known about the model"),
        ("mystery", "structured", "the mode structured asks for it"),
        ("gpt-4o", "validated", "the mode validated asks for it"),
        (
            "kimi-k2",
            "",
            "family kimi: its sections stay in the text when servers do not parse them (sglang, vllm parsers)",
        ),
    ],
)
def test_why_a_text_is_watched(invoke, model, mode, why):
    options = ["--mode", mode] if mode else []
    assert json.loads(invoke("explain", model, "--json", *options).stdout)["watched_why"] == why


def test_a_mode_that_was_asked_for(invoke):
    told = json.loads(invoke("explain", "openai:gpt-4o", "--mode", "parsed", "--json").stdout)
    assert (told["mode"], told["why"], told["dialect"]) == ("parsed", "asked for", "json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpt-4o", "--mode", "magic"], "--mode: no mode 'magic'; there are native, structured, validated, parsed"),
        (["openai:"], "openai:: the model's name is empty; write it as provider:model or model"),
    ],
)
def test_what_a_person_gets_wrong(invoke, arguments, message):
    result = invoke("explain", *arguments)
    assert result.exit_code == 1
    assert isinstance(result.exception, CallerError)
    assert str(result.exception) == message


def test_the_price_with_its_source_and_day(invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config" / "callboard").mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "config" / "callboard" / "callboard.toml"
    file.write_text('[prices."gpt-5"]\ninput = 1\noutput = 2\ndate = 2026-11-01\n')
    shown = invoke("explain", "openai:gpt-5").stdout
    assert "price    a million tokens: input $1; output $2 (user, as of 2026-11-01)\n" in shown
    listed = json.loads(invoke("explain", "openai:gpt-4o", "--json").stdout)["price"]
    assert listed["source"].startswith("genai-prices ")
    assert listed["prices"]["input"] > 0
    assert listed["date"] > "2026"
    assert "price    free (endpoint local)\n" in invoke("explain", "local:x").stdout
    assert json.loads(invoke("explain", "openai:gpt-5", "--json").stdout)["facts"]["prices"]["value"]["input"] == 1
