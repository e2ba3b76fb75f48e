"""The rules for prose that a program can check, in pages, docstrings, comments, and texts of help and errors.

A finding is a sentence that a native reader has to read twice. Rewrite the sentence; do not dodge the pattern.
"""

import ast
import builtins
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src/callboard"
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
COMPARED_WITH = "of|by|to|at|in|from|out"
RULES = {
    "a sentence starts with its subject": r"^(?:What|Who|Whoever|Whatever|Whichever|That which|Those (?:of|that|who)|That of"
    r"|Of (?:the|a|an|what|those|several|two|which|one)|(?:By|For|On|In|From) which|Behind|Beside|Of)\b(?![^.?!]*\?)",
    "if is for conditions": r"^Where\b(?![^.?!]*\?)|, where (?:nobody|nothing|none|no|it is|they are|that is)\b",
    "negate the verb": r"(?<!there )(?<!There )\b(?:is|are|was|were|be) (?:no|none)\b(?! longer| more)",
    "after, not behind": r"\bbehind\b(?! (?:a|the|your|an) (?:\w+ )?(?:proxy|gateway|load balancer|server|firewall|NAT|scenes))",
    "is, not stands": r"\b(?:stands?|stood|standing)\b(?! (?:alone|for|in for|out|still|up))",
    "again, not anew": r"\banew\b|\bbegins? (?:once|again)\b|\bbegun\b",
    "continue, not go on": r"\b(?:goes|go|going|went|gone) on\b",
    "report, not tell": r"\b(?:is|are|was|were|be|been|being|gets?|not) told\b|\btells? (?:of|which|what|whether)\b",
    "nobody is whoever": r"(?i)\b(?:whoever|whosoever|whichever|wherever)\b",
    "name the thing": r"(?i)\b(?:that of|those of|the one that|such a one|likewise|thereof|therein"
    r"|so (?:is|does|are|do) (?:it|they|that|a|the)|nor (?:is|does|are|do))\b",
    "except and because": r"\bbut (?:for|that|to)\b"
    r"|, for (?:it|they|the|a|an|that|this|nobody|no|what|each|all|those|its|there)\b",
    "instead of": r"\bin (?:the )?place of\b|\binstead thereof\b",
    "has ended": r"\b(?:is|are|was|were) over\b",
    "on its own": r"\bby (?:itself|themselves)\b",
    "fix, not mend": r"\bmend(?:s|ed|ing)?\b",
    "active verbs": rf"\b(?:is|are|was|were) (?:given|said|kept|held|made|had|meant|left|asked|done) (?:{COMPARED_WITH})\b",
    "at most 40 words": r"^(?:\S+\s+){40,}\S+",
}
PATTERNS = {rule: re.compile(pattern) for rule, pattern in RULES.items()}
TOKENS = re.compile(
    r"'''(?:\\.|[^\\])*?'''|\"{3}(?:\\.|[^\\])*?\"{3}|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|(#[^\n]*)", re.DOTALL
)
MARKUP = ((r"```.*?```|~~~.*?~~~", "\n\n"), (r"`[^`\n]*`", "X"), (r"\[([^\]]*)\]\([^)]*\)", r"\1"))
SHARES = {"page": 1.5, "docstring": 1.5, "comment": 1.5, "help or error": 0.2}
"""Maximum findings in a hundred sentences of a kind."""

NAMES_OF_OTHERS = {
    "transfer_to_NAME", "test_b", "get_time", "io_read_file", "createIssue",  # examples
    "ast_checker", "readOnlyHint", "preexec_fn", "create_server",  # BFCL, MCP, subprocess, socket
}  # fmt: skip


def read_sentences(text):
    for pattern, replacement in MARKUP:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\s*[-*|#\d])|\|", text):
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z\"'])|(?<=[;:])\s+(?=[A-Z])", " ".join(block.split())):
            words = sentence.strip(" -*#>|")
            if len(words) > 12 and " " in words:
                yield words


@cache
def read_module(path):
    return ast.parse(path.read_text("utf-8"))


@pytest.fixture(scope="module", autouse=True)
def forget_modules():
    """The trees are a million objects, which the garbage collector would visit in all later tests."""
    yield
    read_module.cache_clear()


def is_text(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@cache
def docstrings(path):
    return [
        (node.lineno, node.value.value)
        for node in statements(read_module(path))
        if isinstance(node, ast.Expr) and is_text(node.value)
    ]


def statements(node):
    """Every statement below a node. `ast.walk` takes ten times as long, because it also visits the expressions."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        for each in getattr(node, name, ()):
            yield each
            yield from statements(each)


def comments(path):
    """The comments of a file, which the pattern of a string skips in. `tokenize` takes fifteen times as long."""
    text = path.read_text("utf-8")
    return [(text.count("\n", 0, each.start()) + 1, each[1].lstrip("# ")) for each in TOKENS.finditer(text) if each[1]]


def help_and_errors(path):
    for node in ast.walk(read_module(path)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            texts = [
                keyword.value
                for keyword in node.keywords
                if keyword.arg in {"help", "hint", "message", "title", "description"}
            ]
            if name.endswith(("Error", "Failure", "Note")):
                texts += node.args[:1]
            yield from [(node.lineno, text.value) for text in texts if is_text(text)]


def findings(texts, split=read_sentences):
    """The number of sentences, and a line for each finding."""
    sentences = [(place, sentence) for place, text in texts for sentence in split(text)]
    return len(sentences), [
        f"{place}: {rule}: {sentence[:150]}"
        for rule, pattern in PATTERNS.items()
        for place, sentence in sentences
        if pattern.search(sentence)
    ]


def of_package(read):
    return [
        (f"{path.relative_to(ROOT)}:{line}", text)
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in read(path)
    ]


TEXTS = {
    "page": lambda: [(page.name, page.read_text("utf-8")) for page in PAGES],
    "docstring": lambda: of_package(docstrings),
    "comment": lambda: of_package(comments),
    "help or error": lambda: of_package(help_and_errors),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_few_sentences_have_to_be_read_twice(kind):
    count, found = findings(TEXTS[kind](), split=(lambda text: [text]) if kind == "comment" else read_sentences)
    assert 100 * len(found) <= SHARES[kind] * count, "\n".join([f"{len(found)} in {count} sentences", *found])


def test_the_readme_is_plain():
    assert findings([("README.md", (ROOT / "README.md").read_text("utf-8"))])[1] == []


def test_names_in_docstrings_exist():
    """A name with a capital or an underscore in its middle is one of the package, of its data or of Python."""
    data = "\n".join(
        path.read_text("utf-8") for suffix in ("toml", "html", "js") for path in PACKAGE.rglob(f"*.{suffix}")
    )
    words = NAMES_OF_OTHERS | {*re.findall(r"\w+", data), *dir(builtins), *sys.stdlib_module_names}
    words.update(*(words_of_code(path) for path in sorted(PACKAGE.rglob("*.py"))))
    stale = Counter(
        f"{place}: {name}"
        for place, text in of_package(docstrings)
        for name in re.findall(r"`(\w+(?:\.\w+)*)`", text)
        if re.search(r"[a-z]_[a-z]|[a-z][A-Z]", name.rpartition(".")[2]) and name.rpartition(".")[2] not in words
    )
    assert list(stale) == [], "\n".join(stale)


def words_of_code(path):
    """The words outside of docstrings and comments."""
    lines = path.read_text("utf-8").split("\n")
    for node in statements(read_module(path)):
        if isinstance(node, ast.Expr) and is_text(node.value):
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return re.findall(r"\w+", re.sub(r"(?m)(?:^|\s)# .*", "", "\n".join(lines)))
