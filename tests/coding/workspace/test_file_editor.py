from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.edits.text_edits import Change, replace_lines, replace_text, split_lines
from callboard.coding.workspace.file_editor import MAX_BYTES, NotText, decode, normalize_newlines


@table(
    ("data", "text", "encoding"),
    [
        (b"", "", "utf-8"),
        (b"a\nb", "a\nb", "utf-8"),
        (b"a\r\nb\r\n", "a\nb\n", "utf-8"),
        (b"a\rb\n", "a\rb\n", "utf-8"),
        ("ü→🎭".encode(), "ü→🎭", "utf-8"),
        (codecs.BOM_UTF8 + b"a", "a", "utf-8"),
        ("a\r\nü".encode("utf-16"), "a\nü", "utf-16-le"),
        (codecs.BOM_UTF16_BE + "a".encode("utf-16-be"), "a", "utf-16-be"),
        (b"caf\xe9", "café", "latin-1"),
        (b"\x1b[1mx\x0c", "\x1b[1mx\x0c", "utf-8"),
        (b"\xff\xfea", "ÿþa", "latin-1"),
    ],
)
def test_what_is_text(data, text, encoding):
    file = decode(data)
    assert (file.text, file.encoding) == (text, encoding)
    assert file.encode() == data


@table(
    "data",
    [
        b"\0",
        b"a\0b",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\x01",
        "a".encode("utf-16-le"),
        "a".encode("utf-32"),
        b"GIF89a\xff\x00",
    ],
)
def test_what_is_binary(data):
    with pytest.raises(NotText, match="it is a binary file, not text"):
        decode(data)


def test_what_is_too_large():
    with pytest.raises(NotText, match=f"more than {MAX_BYTES} bytes"):
        decode(b"a" * (MAX_BYTES + 1))


def test_a_character_that_is_not_in_the_encoding():
    file = decode(b"\xe9")
    with pytest.raises(NotText, match=r"the file is in latin-1, which has no '→' \(U\+2192\); write it another way"):
        file.apply(Change("→", ())).encode()


@table(
    ("data", "start", "end", "content", "made"),
    [
        (b"a\r\nb\nc\r\n", 2, 2, "x\n", b"a\r\nx\nc\r\n"),
        (b"a\r\nb\nc\r\n", 2, 2, "x\ny\n", b"a\r\nx\ny\r\nc\r\n"),
        (b"a\r\nb\nc\r\n", 1, 2, "", b"c\r\n"),
        (b"a\nb\r\nc", 3, 3, "x\ny", b"a\nb\r\nx\ny"),
        (b"a\r\nb\r\nc\n", 1, 1, "x\ny\nz", b"x\r\ny\r\nz\r\nb\r\nc\n"),
    ],
)
def test_mixed_endings_stay_where_they_are(data, start, end, content, made):
    file = decode(data)
    assert file.apply(replace_lines(file.text, start, end, content)).encode() == made


PIECES = [b"a", b"b", b"\r\n", b"\n", b"\r", b"\xff", b"\xfe", b"\xef\xbb\xbf", b"\xc3\xa9", b"\0", b"\xd8", b"\x1a"]


@given(st.lists(st.sampled_from(PIECES)).map(b"".join) | st.binary(max_size=40))
def test_what_is_decoded_is_encoded_again(data):
    try:
        file = decode(data)
    except NotText:
        return
    assert file.encode() == data
    assert file.apply(Change(file.text, ())).encode() == data


@given(
    st.lists(st.sampled_from(["a", "b", "c", "\r\n", "\n"]), max_size=20).map("".join),
    st.sampled_from(["a", "b\n", "\n", "a\nb"]),
    st.sampled_from(["x", "x\ny", "", "x\n", "\n\n"]),
)
def test_a_changed_file_has_the_new_text_and_the_old_endings(old, wanted, new):
    file = decode(old.encode())
    if wanted not in file.text:
        return
    change = replace_text(file.text, wanted, new, every=True)
    made = file.apply(change).encode().decode()
    assert normalize_newlines(made) == change.text
    kinds = {ending for ending in ("\r\n", "\n") if ending in old.replace("\r\n", "\r\n" if ending == "\r\n" else "")}
    assert {
        ending for ending in ("\r\n", "\n") if ending in made.replace("\r\n", "\r\n" if ending == "\r\n" else "")
    } <= (kinds or {"\n"})
    # Above and below what was changed every line is as it was.
    first = change.spans[0].start - 1
    assert made.split("\n")[:first] == old.split("\n")[:first]
    last = change.spans[-1]
    below = len(split_lines(file.text)) - (last.start - 1 + last.removed)
    if below > 0:
        assert made.splitlines(keepends=True)[-below:] == old.splitlines(keepends=True)[-below:]
