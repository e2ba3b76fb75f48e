import pytest
from tests.tables import table

from callboard.errors import CallerError
from callboard.profiles import Profile, facts_for, is_of_host, matches, normalise, providers, resolve, split_provider


@table(
    ("name", "plain"),
    [
        ("gpt-4o-mini", "gpt-4o-mini"),
        ("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct"),
        ("qwen3-coder:30b", "qwen3-coder-30b"),
        ("llama3:latest", "llama3"),
        ("codellama:7b-instruct-q4_K_M", "codellama-7b-instruct"),
        ("meta-llama/Llama-3-70B-Instruct.Q8_0", "llama-3-70b-instruct"),
        ("mistralai/Mistral-7B-v0.3-AWQ", "mistral-7b-v0.3"),
    ],
)
def test_a_name_says_which_model_it_is(name, plain):
    assert normalise(name) == plain


@table(
    ("pattern", "model", "found"),
    [
        ("gpt-4", "gpt-4o", True),
        ("llama", "codellama-7b", False),
        ("llama", "tiny-llama", True),
        ("o1", "solo1", False),
    ],
)
def test_a_pattern_begins_a_word(pattern, model, found):
    assert matches(pattern, model) is found


def test_only_a_known_provider_is_split_off():
    assert split_provider("openai:gpt-4o", providers()) == ("openai", "gpt-4o")
    assert split_provider("qwen3-coder:30b", providers()) == ("", "qwen3-coder:30b")


def test_each_fact_says_where_it_comes_from():
    resolution = resolve("openai:gpt-4o", {"context_tokens": 128_000})
    assert resolution.profile.context_tokens == 128_000
    assert {
        fact: resolution.sources[fact] for fact in ("uses_tools", "supports_json_schema", "context_tokens", "wire")
    } == {
        "uses_tools": "family openai",
        "supports_json_schema": "endpoint openai",
        "context_tokens": "user",
        "wire": "default",
    }


def test_the_longest_pattern_decides():
    assert resolve("mistral-7b-instruct").mode == "validated"
    assert resolve("mistral-large").mode == "native"


def test_a_model_is_more_than_its_family():
    profile = resolve("Qwen/Qwen2.5-Coder-0.5B-Instruct").profile
    assert (profile.uses_tools, profile.result_format, profile.answer_after) == (True, "prose", "results")


def test_the_mode_follows_from_the_facts():
    assert resolve("x").mode == "validated"
    assert resolve("x", {"supports_json_schema": True}).mode == "structured"
    assert resolve("x", {"uses_tools": True}).mode == "native"
    assert resolve("x", {"uses_tools": True, "supports_tools": False}).mode == "validated"
    assert resolve("x", {"mode": "parsed"}).mode_reason == "set by user"


@table(
    ("name", "user", "message"),
    [
        ("openai:", {}, "openai:: the model's name is empty"),
        ("x", {"modus": "native"}, "profile of x: no fact 'modus'; there are mode, "),
        ("x", {"modus_evidence": "seen"}, "profile of x: no fact 'modus_evidence'"),
        ("x", {"examined": {"who": "me"}}, "profile of x: Object contains unknown field `who`"),
        ("x", {"mode": "magic"}, "profile of x: Invalid enum value 'magic'"),
    ],
)
def test_what_makes_no_profile_is_refused(name, user, message):
    with pytest.raises(CallerError) as raised:
        resolve(name, user)
    assert str(raised.value).startswith(message)


def test_evidence_goes_with_its_fact():
    """The longer pattern sets a fact without evidence: that of the shorter one does not speak of it."""
    short = {"mode": "native", "mode_evidence": "seen", "context_tokens": 4, "context_tokens_evidence": "told"}
    facts = facts_for("acme-7b", {"acme": short, "acme-7b": {"mode": "parsed"}})
    assert facts == {"mode": "parsed", "context_tokens": 4, "context_tokens_evidence": "told"}
    assert resolve("acme-7b", facts).evidence == {"context_tokens": "told"}


def test_every_endpoint_and_family_has_facts_only():
    for provider in providers():
        assert isinstance(resolve(f"{provider}:x").profile, Profile)


@table(
    ("model", "is_program_or_file"),
    [
        ("gpt-5", False),
        ("", False),
        ("openai:gpt-5,,local:qwen2.5-coder-0.5b", False),
        ("openai:org/model", False),
        ("command:agent --flag", True),
        ("gpt-5, command:agent", True),
        ("local:/models/x", True),
        ("local:x.gguf", True),
    ],
)
def test_a_model_that_is_a_program_or_a_file(model, is_program_or_file):
    assert is_of_host(model) is is_program_or_file
