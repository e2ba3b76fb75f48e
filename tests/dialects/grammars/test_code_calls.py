"""Commands in a fence: which are calls, how a line is read, and what a model reads of a line that cannot be read."""

from __future__ import annotations

from tests.tables import table

from callboard.coding.tools.code_edit import code_edit
from callboard.coding.tools.commands import bash
from callboard.coding.tools.file import file
from callboard.coding.tools.git import git
from callboard.coding.tools.navigate import navigate
from callboard.coding.tools.search import search
from callboard.core import InvocationCanister, InvocationEnded, Note, TextPiece, ToolDeclaration
from callboard.dialects import DIALECTS, TOOL_COMMANDS, Parser, parse, render_calls
from callboard.tools import Invoker

TOOLS = [Invoker.of(each).declare() for each in (file, code_edit, search, navigate, git, bash)]
WITHOUT_BASH = TOOLS[:-1]
COMMANDS = DIALECTS["markdown_bash"]


def calls(text, dialect=TOOL_COMMANDS, tools=TOOLS):
    events = parse(text, tools, dialect)
    return [(each.name, each.arguments) for each in events if isinstance(each, InvocationEnded)]


def block(body):
    return f"```bash\n{body}\n```\n"


@table(
    ("line", "name", "arguments"),
    [
        # Seed 003.
        ("file pkg/recurrence/generator.go", "file", {"path": "pkg/recurrence/generator.go"}),
        ('search -t "Generate Instances" pkg/', "search", {"pattern": "Generate Instances", "directory": "pkg/"}),
        ("search find_definition NAME", "search", {"action": "find_definition", "name": "NAME"}),
        (
            'code_edit -f a.py -l 3:9 -r "x = 1"',
            "code_edit",
            {"path": "a.py", "start_line": "3:9", "new_content": "x = 1"},
        ),
        ('git commit -m "Fix it"', "git", {"action": "commit", "message": "Fix it"}),
        # Other people's.
        ("file Makefile", "file", {"path": "Makefile"}),
        ("file read a.py", "file", {"action": "read", "path": "a.py"}),
        ("git add a.py b.py", "git", {"action": "add", "files": ["a.py", "b.py"]}),
        ("git add --files a.py", "git", {"action": "add", "files": ["a.py"]}),
        ("git checkout main", "git", {"action": "checkout", "branch": "main"}),
        ("search find_files '*.py' src", "search", {"action": "find_files", "pattern": "*.py", "directory": "src"}),
        ("search GenerateInstances src/", "search", {"pattern": "GenerateInstances", "directory": "src/"}),
        ('bash -c "ls -la | head"', "bash", {"command": "ls -la | head"}),
        ("file a.py  # read it first", "file", {"path": "a.py"}),
        ("code_edit -f a.py \\\n  -l 3 -r x", "code_edit", {"path": "a.py", "start_line": "3", "new_content": "x"}),
    ],
)
def test_a_line_is_a_call(line, name, arguments):
    assert calls(block(line)) == [(name, arguments)]


@table(
    ("quoted", "text"),
    [
        (r'"def f():\n    return 1"', "def f():\n    return 1"),
        (r'"a\\nb"', r"a\nb"),
        (r"'a\nb'", r"a\nb"),
        (r'"\bword\b \d+"', r"\bword\b \d+"),
        (r'"say \"hi\""', 'say "hi"'),
        ("\"print('a\\n')\nprint(2)\"", "print('a\\n')\nprint(2)"),
    ],
)
def test_escapes_in_quotation_marks(quoted, text):
    assert calls(block(f"code_edit -f a.py -a {quoted}")) == [("code_edit", {"path": "a.py", "added": text})]


def test_each_line_is_a_call_in_its_order():
    body = "# Look first.\nfile a.py\n\nfile b.py\n"
    assert calls(block(body)) == [("file", {"path": "a.py"}), ("file", {"path": "b.py"})]


@table(
    ("line", "fault"),
    [
        ('file "a.py', "a quotation is not closed"),
        ("git commit -m 'It works", "a quotation is not closed"),
        ("git add . && git commit -m x", "one command a line: && cannot be used"),
        ("file a.py | head", "one command a line: | cannot be used"),
    ],
)
@table("size", [1, 7, 1000])
def test_a_line_that_cannot_be_read_is_a_call_that_says_why(line, fault, size):
    text = f"First:\n{block(line)}Then:\n{block('file z.py')}"
    parser = Parser(TOOLS, TOOL_COMMANDS)
    events = [each for at in range(0, len(text), size) for each in parser.feed(text[at : at + size])]
    first, second = [each for each in [*events, *parser.finish()] if isinstance(each, InvocationEnded)]
    assert (first.arguments, first.raw) == (None, f"{line}  # {fault}")
    assert (second.name, second.arguments) == ("file", {"path": "z.py"})


@table(("line", "strange"), [("git log --oneline", "--oneline"), ("file view a.py", "a.py"), ("search -t", "-t")])
def test_a_flag_or_word_that_the_tool_does_not_have_is_an_argument_that_it_refuses(line, strange):
    ((_, arguments),) = calls(block(line))
    assert arguments[strange] is True


@table("dialect", [TOOL_COMMANDS, COMMANDS])
@table("size", [1, 5, 1000])
def test_a_block_with_a_line_of_no_tool_stays_text_and_a_note_says_why(dialect, size):
    text = f"Look:\n{block('file a.py' + chr(10) + 'ls -la')}Then:\n{block('file z.py')}Done."
    parser = Parser(WITHOUT_BASH, dialect)
    events = [each for at in range(0, len(text), size) for each in parser.feed(text[at : at + size])]
    events += parser.finish()
    assert [each.arguments for each in events if isinstance(each, InvocationEnded)] == [{"path": "z.py"}]
    (note,) = [each for each in events if isinstance(each, Note)]
    assert (note.kind, note.code) == ("alert", "format")
    assert "'ls' is not a tool" in note.text
    told = "".join([each.text for each in events if isinstance(each, TextPiece)])
    assert told == "Look:\n```bash\nfile a.py\nls -la\n```\nThen:\nDone."


def test_a_block_without_any_tool_stays_text():
    text = block("npm install")
    assert [each.text for each in parse(text, TOOLS, TOOL_COMMANDS) if isinstance(each, TextPiece)]
    assert not any(isinstance(each, (Note, InvocationEnded)) for each in parse(text, TOOLS, TOOL_COMMANDS))


def test_with_a_tool_that_runs_commands_the_dialect_gives_it_any_other_block():
    body = "file a.py\nls -la"
    assert calls(block(body), COMMANDS) == [("bash", {"command": body})]
    assert calls(block("git log --oneline"), COMMANDS) == [("bash", {"command": "git log --oneline"})]


@table(
    ("name", "arguments", "text"),
    [
        ("file", {"path": "a.py"}, "file --path a.py"),
        ("file", {"action": "write", "path": "a b", "content": "x = 1\ny = '2'\n"}, None),
        ("git", {"action": "add", "files": ["a", "b c"]}, None),
        ("search", {"pattern": "a", "case_insensitive": True, "max_results": 5}, None),
        ("bash", {"command": "ls | head"}, "ls | head"),
    ],
)
def test_past_calls_are_written_as_commands(name, arguments, text):
    written = render_calls(COMMANDS, [InvocationCanister("1", name, arguments)], TOOLS)
    assert written.startswith("```bash\n")
    assert text is None or written == f"```bash\n{text}\n```"
    assert calls(written, COMMANDS) == [(name, arguments)]


def test_a_command_that_could_not_be_read_is_written_as_it_was():
    raw = 'file "a.py  # a quotation is not closed'
    assert render_calls(COMMANDS, [InvocationCanister("1", "file", None, raw)], TOOLS) == f"```bash\n{raw}\n```"


def test_positional_words_of_a_tool_without_actions_follow_its_required_arguments():
    schema = {"type": "object", "properties": {"to": {"type": "string"}, "n": {"type": "integer"}}, "required": ["n"]}
    assert calls(block("go 3 here"), tools=[ToolDeclaration("go", "", schema)]) == [("go", {"n": 3, "to": "here"})]


OPTION_A = """Let me search for the function:

```bash
search -t "GenerateInstances" pkg/recurrence/
```

Now let me read the file:

```bash
file pkg/recurrence/generator.go
```
"""
SEARCHED = ("search", {"pattern": "GenerateInstances", "directory": "pkg/recurrence/"})
READ = ("file", {"path": "pkg/recurrence/generator.go"})


def test_the_option_that_seed_003_recommends():
    assert calls(OPTION_A) == [SEARCHED, READ]


@table(
    ("text", "called"),
    [
        ("I'll start by reading the file:\n```bash\nfile pkg/recurrence/generator.go\n```", READ),
        (
            "Now I'll create the test file:\n```bash\ncode_edit -f pkg/recurrence/generator_test.go -a ...\n```",
            ("code_edit", {"path": "pkg/recurrence/generator_test.go", "added": "..."}),
        ),
        (
            "I'll help you.\n\n## Step 1: Understanding Requirements\n...\n\n```bash\nfile pkg/recurrence/generator.go\n```\n",
            READ,
        ),
    ],
)
def test_the_rounds_of_seed_003(text, called):
    assert calls(text) == [called]
