from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.agents.code_blocks import CodeBlock, file_of_block, parse_code_blocks

CODE = "def f():\n    pass\n"


@table(
    ("reply", "path"),
    [
        ("src/a.py\n```python\n" + CODE + "```", "src/a.py"),
        ("Change `src/a.py`:\n\n```python\n" + CODE + "```", "src/a.py"),
        ("**src/a.py**\n```\n" + CODE + "```", "src/a.py"),
        ("```python src/a.py\n" + CODE + "```", "src/a.py"),
        ("```python:src/a.py\n" + CODE + "```", "src/a.py"),
        ('```python title="src/a.py"\n' + CODE + "```", ""),
        ("```python\n# src/a.py\n" + CODE + "```", "src/a.py"),
        ("```python\n# file: src/a.py\n" + CODE + "```", "src/a.py"),
        ("```python\n" + CODE + "```", ""),
        ("```\nsrc/a.py\n```\n```python\n" + CODE + "```", "src/a.py"),
        ("```bash\nsrc/a.py\n```\n\n```python\n" + CODE + "```", "src/a.py"),
        ("```python\nsrc/a.py\n" + CODE + "```", "src/a.py"),
        ("```python\n\n# src/a.py\n" + CODE + "```", "src/a.py"),
        ("```python src/a.py\n# src/a.py\n" + CODE + "```", "src/a.py"),
        ("~~~~python\n" + CODE + "~~~~", ""),
        ("Here it is.\n```python\n" + CODE, ""),
        ("from ./src/a.py to src/b.py:\n```python\n" + CODE + "```", "src/b.py"),
    ],
)
def test_code_and_the_file_that_it_is_for(reply, path):
    (block,) = parse_code_blocks(reply)
    assert (block.code.strip(), block.path) == (CODE.strip(), path)


@table("reply", ["", "No code.", "```bash\nls\n```", "```json\n{}\n```", "```python\n\n```", "`x`"])
def test_what_is_no_code(reply):
    assert parse_code_blocks(reply) == []


@table(("end", "is_cut"), [("```", False), ("", True), ("``", True)])
def test_a_reply_that_ends_in_its_code(end, is_cut):
    (block,) = parse_code_blocks("a.py\n```\n" + CODE + end)
    assert block.is_cut == is_cut


def test_a_fence_inside_of_a_longer_one_is_code():
    (block,) = parse_code_blocks("````markdown.md\nx\n````\n````python\n```\nx\n```\n````")[-1:]
    assert block.code == "```\nx\n```\n"


@table(
    ("language", "code"),
    [
        ("python", 'def f():\n    """Doc.\n\n    ```python\n    f()\n    ```\n    """\n    return 1\n'),
        ("python", '"""Doc.\n\n```\nf()\n```\n"""\n\n\ndef f():\n    return 1\n'),
        ("python", "TEXT = r'''\n```\n\"\"\"\n````\n'''\n"),
        ("", 'x = "\\""; y = \'"""\'  # """ it\'s\nTEXT = """\n```js\nf()\n```\n\\"""\n"""\n'),
        ("js", "/*\n```\nf()\n```\n*/\nfunction f() {}\n"),
        ("go", "/*\nf:\n```\nf()\n```\n*/\nfunc f() {}\n"),
        ("js", "const a = '/*', b = `'''`; // \"\"\"\n"),
    ],
)
@table("fence", ["```", "~~~", "````"])
def test_a_fence_in_a_string_or_comment_ends_nothing(language, code, fence):
    end = "\nThat is all.\n\nb.py\n```python\nx = 1\n```\n"
    blocks = parse_code_blocks(f"a.x\n{fence}{language}\n{code}{fence}{end}")
    assert [each.code for each in blocks] == [code, "x = 1\n"]
    assert [each.path for each in blocks] == ["a.x", "b.py"]


def test_a_fence_in_markdown_ends_nothing():
    text = "```markdown README.md\n# A\n```python\nf()\n```\nText.\n```\n\na.py\n```python\nx = 1\n```\n"
    assert [each.code for each in parse_code_blocks(text)] == ["x = 1\n"]


@table("quotes", ['"""', "'''"])
def test_a_string_that_never_ends_does_not_hide_the_next_block(quotes):
    blocks = parse_code_blocks(f"a.py\n```python\nx = {quotes}\n```\nb.py\n```python\ny = 1\n```\n")
    assert [each.code for each in blocks] == [f"x = {quotes}\n", "y = 1\n"]


PARTS = [
    "```python\n",
    "```\n'''\n",
    '"""\n',
    "a",
    "a/",
    '\\"',
    "/*\n",
    "```markdown\n```py\n",
    "\n# a.py",
    "'\\''\"",
    "# ",
]


@table("part", PARTS)
@table("start", ["", "```python\n", "```js\n"])
def test_a_long_reply_is_read(start, part):
    reply = start + part * (200_000 // len(part))
    assert sum(len(each.code) for each in parse_code_blocks(f"{reply}\n```\nx\n```")) <= len(reply) + 20


FILES = ["src/a.py", "src/b.py", "web/a.js", "tests/test_a.py"]
DEFINED = {"src/a.py": ["f", "g"], "src/b.py": ["h"], "web/a.js": ["f"], "tests/test_a.py": ["test_f"]}


@table(
    ("block", "names", "place"),
    [
        (CodeBlock("", "src/b.py"), ["f"], "src/b.py"),
        (CodeBlock("", "b.py"), ["f"], "src/b.py"),
        (CodeBlock("", "SRC/B.py"), ["f"], "src/b.py"),
        (CodeBlock("", "new/c.py", (".py",)), ["f"], "new/c.py"),
        (CodeBlock("", "", (".py",)), ["f"], "src/a.py"),
        (CodeBlock("", "", (".js",)), ["f"], "web/a.js"),
        (CodeBlock("", "", (".py",)), ["test_f"], "tests/test_a.py"),
        (CodeBlock("", "README.md", (".py",)), ["h"], "src/b.py"),
        (CodeBlock("", "", (".py",)), ["unknown"], ""),
    ],
)
def test_where_a_block_belongs(block, names, place):
    assert file_of_block(block, FILES, DEFINED, names) == place


@table(
    ("block", "names", "wanted", "place"),
    [
        (CodeBlock("", "", (".py",)), ["new"], ["tests/new.py"], "tests/new.py"),
        (CodeBlock("", "", (".js",)), ["new"], ["tests/new.py"], ""),
        (CodeBlock(""), ["new"], ["tests/new.py", "web/new.js"], ""),
        (CodeBlock("", "", (".py",)), ["new"], ["tests/new.py", "web/new.js"], "tests/new.py"),
        (CodeBlock("", "", (".py",)), ["f"], ["tests/new.py"], "src/a.py"),
        (CodeBlock("", "src/b.py"), ["new"], ["tests/new.py"], "src/b.py"),
    ],
)
def test_a_block_without_a_path_is_for_the_one_new_file(block, names, wanted, place):
    assert file_of_block(block, FILES, DEFINED, names, wanted) == place


@given(st.lists(st.sampled_from(["```", "```python", "x = 1", "a/b.py", "", "````", "~~~"]), max_size=30))
def test_any_reply_is_read(lines):
    for block in parse_code_blocks("\n".join(lines)):
        assert block.code.strip()
