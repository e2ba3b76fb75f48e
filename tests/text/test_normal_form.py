import html
import json

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.text.normal_form import normal_form, spellings, without_prefixes


def squeeze(text):
    return "".join(text.split())


TEXT = '<tool_call>{"name": "get_weather", "arguments": {"city": "Aix-en-Provence"}}</tool_call>'


@table(
    "disguise",
    [
        lambda text: text.replace(" ", "\n\t "),
        json.dumps,
        lambda text: json.dumps(json.dumps(text)),
        html.escape,
        lambda text: html.escape(html.escape(text)),
        lambda text: json.dumps(html.escape(text)),
        lambda text: "".join(f"&#{ord(char)};" for char in text),
        lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
        lambda text: "".join(f"\\\\u{{{ord(char):x}}}" for char in text),
        lambda text: "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text),
        "\u200b".join,
        lambda text: text.replace("_", "\\_"),
        str.upper,
    ],
)
def test_a_disguise_is_taken_off(disguise):
    assert squeeze(normal_form(disguise(TEXT))).strip('"') == squeeze(normal_form(TEXT))
    squeezed = ["".join(each.casefold().split()).strip('"') for each in spellings(disguise(TEXT))]
    assert "".join(TEXT.casefold().split()) in squeezed


def test_characters_beyond_the_first_plane():
    assert normal_form(json.dumps("𠀀")) == normal_form('"𠀀"')


@table("prefix", ["> ", "> > ", "| ", "+", "# ", "  12: ", "7\t", "41→", "docs/a.md:3:"])
def test_what_stands_before_lines_is_taken_off(prefix):
    form = normal_form("\n".join(prefix + line for line in ("one", "two")))
    assert without_prefixes(form) == "one\ntwo"


def test_one_such_line_stays_as_it_is():
    assert without_prefixes("12: one\ntwo") == "12: one\ntwo"


def test_spellings_keep_case_lines_and_white_space():
    text = 'A  "B"\n  c'
    assert spellings(text) == (text,)
    assert text in spellings(json.dumps(text)[1:-1])


def test_a_spelling_for_each_layer():
    once = json.dumps(TEXT)[1:-1]
    assert {TEXT, once} <= set(spellings(json.dumps(once)[1:-1]))


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])), st.integers(0, 2))
def test_escaped_in_json_it_says_the_same(text, depth):
    text = text.replace("\\", "").replace("&", "")
    written = text
    for _ in range(depth):
        written = json.dumps(written)[1:-1]
    assert squeeze(normal_form(written)) == squeeze(normal_form(text))
