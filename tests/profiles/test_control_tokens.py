import json
from pathlib import Path

import pytest
from tests.tables import table

from callboard.errors import CallerError
from callboard.profiles import resolve
from callboard.profiles.control_tokens import control_tokens, token_table

ROWS = [(name, token) for name, row in token_table().items() for token in (*row["turns"], *row.get("markup", ()))]
SEEN = json.loads((Path(__file__).parents[1] / "vectors" / "control_tokens.json").read_text("utf-8"))


@table("name", token_table())
def test_each_token_of_a_family_is_escaped_and_restored(name):
    tokens = control_tokens(name)
    for token in [token.replace("{n}", "17") for row, token in ROWS if row == name]:
        escaped = tokens.escape(token)
        assert token not in escaped
        assert tokens.unescape(escaped) == token


@table("seen", SEEN["families"], ids=lambda seen: f"{seen['family']} {seen['source'][:20]}")
def test_what_real_tokenizers_have_is_escaped(seen):
    tokens = control_tokens(seen["family"])
    for token in [token.replace("{n}", "0021") for token in seen["tokens"]]:
        assert tokens.escape(f"a{token}b") == f"a{token[0]}\u2060{token[1:]}b"
    for token in seen.get("left_out", ()):
        assert tokens.escape(token) == token


@table(
    ("model", "tokenizes", "tokens"),
    [
        ("openai:gpt-5", False, "all"),
        ("anthropic:claude-sonnet-5", False, "all"),
        ("gemini:gemini-3-pro", False, "all"),
        ("vllm:Qwen/Qwen3-32B", True, ("qwen",)),
        ("openai:gpt-oss-20b", True, ("harmony",)),
        ("a-model-of-nobody", True, "all"),
    ],
)
def test_the_profile_says_which_tokens_an_endpoint_takes_in_a_text(model, tokenizes, tokens):
    profile = resolve(model).profile
    names = profile.control_tokens if profile.control_tokens == "all" else (profile.control_tokens,)
    assert (profile.parses_special_tokens, names) == (tokenizes, tokens)


def test_tokens_that_nobody_has_are_refused():
    with pytest.raises(CallerError, match="no control tokens 'klingon'"):
        control_tokens("klingon")
