"""Texts of models and tools as HTML."""

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.servers.board.markup import format_json_text, render_markdown

TAGS = {
    "p",
    "ul",
    "ol",
    "li",
    "blockquote",
    "pre",
    "code",
    "em",
    "strong",
    "br",
    "hr",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
}
CELLS = {"table", "thead", "tbody", "tr", "th", "td"}
LOADED = [
    "<script>",
    "<img src=x onerror=alert(1)>",
    "![x](http://x.test/a.png)",
    "[x](javascript:alert(1))",
    "<http://x.test>",
]
PARTS = [
    *LOADED,
    "[a]: http://x.test",
    "[a]",
    "&lt;b&gt;",
    "<!-- -->",
    "\n| a | b |\n| :-- | --: |\n",
    "\n",
    "word ",
    *"`>-#*|~\t",
]


class Reader(HTMLParser):
    """The tags of a page, with their attributes, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@given(st.lists(st.sampled_from(PARTS)).map("".join) | st.text())
def test_markdown_runs_and_loads_nothing(text):
    for tag, attributes in Reader(str(render_markdown(text))).tags:
        assert tag in TAGS | CELLS
        assert set(attributes) <= {"class", "start"}


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "![a picture](https://evil.example/p.png?secret)",
        "[a link](javascript:alert(1))",
        '**<img src="https://evil.example/p.png">**',
    ],
)
def test_what_would_run_or_load_stays_text(text):
    read = Reader(str(render_markdown(text)))
    assert not {tag for tag, _ in read.tags} & {"script", "img", "a"}
    assert read.text.strip() == text.strip("*")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_over_several_lines_means_the_same(value):
    assert json.loads(format_json_text(json.dumps(value))) == value


@pytest.mark.parametrize("text", ["", "{", "[1, 2", '{"a": NaN}', "[" * 100_000, "[" * 500 + "]" * 500, "a { b"])
def test_text_that_is_no_json_is_unchanged(text):
    assert format_json_text(text) == text


def test_empty_lines_without_end_take_linear_time():
    lines = "\n" * 100_000
    assert render_markdown(lines) == f'<p class="text">{lines}</p>'
