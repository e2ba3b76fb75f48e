import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.configuration.toml import MAX_BYTES, find_line, read_document
from callboard.errors import CallerError, DescriptorError

TEXT = '''\
# A comment, with name = 3
name = "x"
"quoted key" = 1
a.b . c = 2

[ensemble]
text = """
name = 7
[defaults]
"""
deep = { inner = 1 }

[[invokers]]
name = "one"

[[invokers]]
name = "two"
timeout = 3
  [invokers.arguments.properties.path]
  type = 'string'
[[invokers.more]]
x = 1
[[invokers.more]]
x = 2

[profiles."qwen2.5"]
mode = "native"
[profiles.'a "b"']
mode = "native"
'''


@table(
    ("keys", "line"),
    [
        (("name",), 2),
        (("quoted key",), 3),
        (("a",), 4),
        (("a", "b", "c"), 4),
        (("ensemble",), 6),
        (("ensemble", "text"), 7),
        (("ensemble", "deep", "inner"), 11),
        (("ensemble", "name"), 6),
        (("invokers", 0), 13),
        (("invokers", 0, "name"), 14),
        (("invokers", 1), 16),
        (("invokers", 1, "timeout"), 18),
        (("invokers", 1, "arguments", "properties", "path", "type"), 20),
        (("invokers", 1, "more", 1, "x"), 24),
        (("invokers", 2), None),
        (("profiles", "qwen2.5", "mode"), 27),
        (("profiles", 'a "b"', "mode"), 29),
        (("nothing",), None),
        ((), None),
    ],
)
def test_the_line_of_a_key(keys, line):
    tomllib.loads(TEXT)
    assert find_line(TEXT, keys) == line


words = st.sampled_from(["a", "b", "c.d", 'e"f', "g h", "ключ"])


@given(st.dictionaries(words, st.dictionaries(words, st.integers(), min_size=1), min_size=1))
def test_every_key_has_its_line(tables):
    def quoted(key):
        return '"' + key.replace('"', '\\"') + '"'

    lines = []
    places = {}
    for name, pairs in tables.items():
        lines.append(f"[{quoted(name)}]")
        places[name,] = len(lines)
        for key, value in pairs.items():
            lines.append(f"{quoted(key)} = {value}")
            places[name, key] = len(lines)
    text = "\n".join(lines)
    assert tomllib.loads(text) == tables
    assert {keys: find_line(text, keys) for keys in places} == places


@given(st.text(), st.lists(st.text() | st.integers()).map(tuple))
def test_no_text_is_too_much_for_the_scan(text, keys):
    line = find_line(text, keys)
    assert line is None or 1 <= line <= text.count("\n") + 1


def test_a_place(write, tmp_path):
    document = read_document(write("io.toml", TEXT), CallerError)
    assert document.where(("invokers", 1, "timeout")) == f"{tmp_path}/io.toml:18: invokers[1].timeout"
    assert document.where(("nothing",)) == f"{tmp_path}/io.toml: nothing"
    assert document.where(()) == f"{tmp_path}/io.toml"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"a = 1\nb = \nc = 3", ":2: not TOML: Invalid value; write text in quotation marks"),
        (b"a = 1\na = 2\nb = 3", ":2: not TOML: Cannot overwrite a value"),
        (b"a = 1\n[b", ": not TOML: Expected ']' at the end of a table declaration (at end of document)"),
        (b"a = 1\nb = '\xff'", ":2: not UTF-8; save it as UTF-8"),
        (b"a = " + b"[" * 100_000, ": not TOML: nested too deeply"),
        (b"#" * (MAX_BYTES + 1), ": larger than 1024 KB"),
    ],
)
def test_what_is_no_toml(tmp_path, data, told):
    path = tmp_path / "x.toml"
    path.write_bytes(data)
    with pytest.raises(DescriptorError) as caught:
        read_document(path, DescriptorError)
    assert str(caught.value) == f"{path}{told}"


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(CallerError, match="No such file or directory"):
        read_document(tmp_path / "nothing", CallerError)
    with pytest.raises(CallerError, match="Is a directory"):
        read_document(tmp_path, CallerError)


def test_lines_may_end_as_in_windows(tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes(b"[a]\r\nb = 1\r\n")
    assert read_document(path, CallerError).where(("a", "b")) == f"{path}:2: a.b"


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xef\xbb\xbf[a]\nb = 1\n")
    document = read_document(path, CallerError)
    assert document.values == {"a": {"b": 1}}
    assert document.where(("a", "b")) == f"{path}:2: a.b"


def test_what_another_encoding_is_said_to_be(tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes("a = 1".encode("utf-16"))
    with pytest.raises(CallerError, match=r"not UTF-8; save it as UTF-8$"):
        read_document(path, CallerError)
