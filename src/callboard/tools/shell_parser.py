"""Parse a shell command line into the programs that it runs, each with its words.

Laws: what is listed runs, or may run; whatever is not parsed for sure, or bash and dash read differently, makes the
command `unclear`, so that nobody takes the list for complete. Linear in the command's length, times the depth of commands in commands, which is bounded.

Why not shlex: to it a quoted operator is the same as a bare one, a line's end is a blank, and `a#` a comment. Why not
bashlex: it is GPL, and gives wrong trees for what bash accepts. What a program does by itself, as `python x.py` or
`make`, cannot be seen in a command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from callboard.tools import wrapper_programs
from callboard.tools.unsafe_options import find_acting

MAX_LENGTH: Final = 16 * 1024
"""Characters of a command that is read; a longer one is unclear."""
MAX_DEPTH: Final = 8
"""Commands inside of commands, as in `env nice sh -c '...'`."""


_MAYBE: Final = 8
"""Words that are taken for the program that is run, where it is not clear which."""


class Word(NamedTuple):
    """A word as the program gets it; one that is not `certain` may become any words: `*.py`, `~`, `$x`."""

    text: str
    certain: bool = True


class Segment(NamedTuple):
    """A program with its words, the first its name. An `opaque` one may run programs that its words do not show.

    `acting` are the numbers of the words by which it writes a file or runs something, where it looks otherwise. An
    `implied` one is run by a program to whose business that belongs: what allows that one allows it.
    """

    words: tuple[Word, ...]
    opaque: bool = False
    acting: tuple[int, ...] = ()
    implied: bool = False

    def __str__(self) -> str:
        return " ".join([word.text for word in self.words])


class ShellCommand(NamedTuple):
    """The segments of all pipelines, in their order, what a program runs before itself; `unclear` says what could not be read, empty if all was.

    It is `simple` if it has no operator: no list, pipeline, negation, background, or second line.
    """

    segments: tuple[Segment, ...]
    unclear: str = ""
    simple: bool = True


def parse_command(text: str) -> ShellCommand:
    """What a POSIX shell, or bash, would run."""
    reading = _Parser()
    reading.read(text.strip(" \t\n"), 0)
    return ShellCommand(tuple(reading.segments), reading.unclear, reading.simple)


def command_of_words(words: Sequence[str]) -> ShellCommand:
    """What a list of words runs that no shell looks at."""
    reading = _Parser()
    reading.run([Word(each) for each in words], 0)
    return ShellCommand(tuple(reading.segments), reading.unclear)


# Tokens. The possessive quantifiers keep them linear.
_TOKEN: Final = re.compile(
    r"""
      (?P<blank>[ \t]++|\\\n)
    | (?P<line>\n)
    | (?P<single>'[^']*+')
    | (?P<double>"(?:[^"\\]|\\.)*+")
    | (?P<escape>\\.)
    | (?P<redirect>&>>?|[0-9]*+(?:<<<|<<-?|<>|<&|>&|>>|>\||<|>))
    | (?P<operator>&&|\|\||\|&|;;&|;;|;&|[;|&()`])
    | (?P<comment>\#)
    | (?P<plain>[^\s'"\\;|&()`<>\#$*?\[\]{}~\x00-\x1f\x7f]++)
    | (?P<odd>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_DOUBLE: Final = re.compile(r"\\(?P<kept>[\"\\$`])|\\(?P<joined>\n)|(?P<expanded>[$`])", re.DOTALL)
_DIFFERS: Final = "bash and dash read it differently"
_UNCLEAR_OPERATORS: Final[Mapping[str, str]] = {
    **dict.fromkeys("()`", "it has a subshell or a substitution"),
    "|&": _DIFFERS,
}
_PATTERNS: Final = frozenset("*?[]{}~#")
"""Characters by which a word may become others, and nothing worse."""
_UNENDED: Final = frozenset("'\"\\")
_PAIRED: Final = frozenset("[]{}#")
_HARMLESS: Final = re.compile(r"[0-9]?(?:(?:>|>>|>\||<|<>)/dev/null|[<>]&[0-9-])")
"""A redirection, with its target, that bash and dash read alike, and that reads and writes no file."""

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_OPENERS: Final = frozenset({"if", "then", "else", "elif", "do", "while", "until", "{", "coproc"})
_CLOSERS: Final = frozenset({"fi", "done", "esac", "}"})
_LISTS: Final = frozenset({"for", "case", "select", "function", "[["})
"""Reserved words behind which no program stands."""
_RESERVED: Final = _OPENERS | _CLOSERS | _LISTS | {"!"}


class _Parser:
    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.unclear = ""
        self.simple = True

    def doubt(self, why: str) -> None:
        self.unclear = self.unclear or why

    # A line.

    def read(self, text: str, depth: int) -> None:
        if depth > MAX_DEPTH or len(text) > MAX_LENGTH:
            self.doubt("it is too long" if len(text) > MAX_LENGTH else "commands are in commands too deeply")
            return
        line = _Line(self, depth)
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                raise AssertionError("every character is a token")
            at = token.end()
            piece = token[0]
            match token.lastgroup:
                case "blank":
                    if piece != "\\\n":
                        line.end_word()
                    elif line.inside:
                        self.doubt("a word goes over two lines")
                case "single":
                    line.quote(piece[1:-1])
                case "double":
                    line.quote_doubly(piece[1:-1])
                case "escape":
                    line.quote(piece[1])
                case "redirect" if line.inside and piece[0].isdigit():
                    at -= len(piece.lstrip("0123456789"))  # the digits belong to the word before them
                    line.write(text[token.start() : at])
                case "redirect" if "<<" in piece:
                    line.end_segment()
                    self.doubt("it has a document in it")
                    break
                case "redirect":
                    line.redirect(piece)
                case "line" | "operator":
                    line.end_segment()
                    self.simple = False
                    if piece in _UNCLEAR_OPERATORS:
                        self.doubt(_UNCLEAR_OPERATORS[piece])
                case "comment" if not line.inside:
                    end = text.find("\n", at)
                    at = len(text) if end < 0 else end
                case "plain":
                    line.write(piece)
                case _:
                    line.write(piece, wild=True)
                    if piece not in _PATTERNS:
                        self.doubt(_ODD.get(piece, "it has a control character"))
                    if piece in _UNENDED:
                        break
        line.end_segment()

    def segment(self, words: Sequence[Word], leads: Sequence[str], depth: int) -> None:
        """What a shell makes of the words between two operators."""
        at = 0
        while at < len(words):
            lead = leads[at]
            if "=" in lead or ("[" in lead and "=" in words[at].text):
                self.doubt("it sets a variable")
            elif lead != words[at].text:
                break
            elif lead in _LISTS:
                self.doubt("it has a compound command")
                return
            elif lead in _OPENERS or lead in _CLOSERS:
                self.doubt("it has a compound command")
            elif lead != "!":
                break
            else:
                self.simple = False
            at += 1
        self.run(words[at:], depth)

    # A program.

    def run(self, words: Sequence[Word], depth: int, *, implied: bool = False) -> None:
        """Lists the program, and those that it runs."""
        if not words:
            return
        if depth > MAX_DEPTH:
            self.doubt("commands are in commands too deeply")
            return
        first = words[0]
        if first.text in _RESERVED:
            # Behind bash's own `time` these are no programs.
            self.doubt("it has a compound command")
            self.run(words[1:], depth + 1)
        name = first.text.rpartition("/")[2]
        if not first.certain or not name:
            self.doubt("which program it runs is not certain")
        texts = [word.text for word in words[1:]]
        if wrapper_programs.redefines(name, texts):
            self.doubt(f"{name} changes what other words mean")
        if not self._read_others(name, words[1:], depth):
            self.doubt(f"what {name} runs is not certain")
        numbers, runs = find_acting(name, texts)
        opaque = runs or wrapper_programs.runs_unseen(name, texts)
        self.segments.append(Segment(tuple(words), opaque, tuple([number + 1 for number in numbers]), implied))

    def _read_others(self, name: str, words: Sequence[Word], depth: int) -> bool:
        """Reads what a program runs; whether all of it could be read."""
        if name in wrapper_programs.SHELLS:
            return self._shell(words, depth)
        if name == "eval":
            self.read(" ".join([word.text for word in words]), depth + 1)
            return all(word.certain for word in words)
        runner = next((each for each in _runners(name, words) if each in wrapper_programs.RUNNERS), None)
        if runner is not None:
            inner = words[len(runner) - 1 :]
            if inner and inner[0].text == "--":
                inner = inner[1:]
            return self._managed_programs(inner, depth)
        if name in wrapper_programs.WRAPPERS:
            return self._wrapped_programs(wrapper_programs.WRAPPERS[name], words, depth)
        return self._read_find(words, depth) if name == "find" else True

    def _shell(self, words: Sequence[Word], depth: int) -> bool:
        code = False
        for word in words:
            text = word.text
            if not word.certain or text in {"-", "--"}:
                return False
            if text.startswith("--"):
                if text not in wrapper_programs.SHELL_OPTIONS:
                    return False
            elif text.startswith(("-", "+")):
                if not set(text[1:]) <= wrapper_programs.SHELL_LETTERS:
                    return False
                code = code or "c" in text
            elif code:
                # What stands behind are its parameters, which it can run by a variable only.
                self.read(text, depth + 1)
                return True
            else:
                return not text.startswith("/dev/")
        return False

    def _managed_programs(self, words: Sequence[Word], depth: int) -> bool:
        """What a manager of packages runs; behind options that are not known each word may be the program."""
        if not words or not words[0].text.startswith("-"):
            self.run(words, depth + 1, implied=True)
            return True
        places = [at for at, word in enumerate(words) if not word.text.startswith("-")][:_MAYBE]
        self.segments += [Segment(tuple(words[at:]), implied=True) for at in places]
        return not any(word.text.startswith(("-c", "--call", "--shell")) for word in words[: (places or [0])[0] + 1])

    def _wrapped_programs(self, wrapper: wrapper_programs.Wrapper, words: Sequence[Word], depth: int) -> bool:
        at = 0
        operands = wrapper.operands
        while at < len(words):
            word = words[at]
            text = word.text
            if not word.certain or text == "-":
                return False
            if text == "--" and operands == wrapper.operands:
                at += 1
            elif text.startswith("--") and operands == wrapper.operands:
                if text not in wrapper.long:
                    return False
                at += 1
                continue
            elif text.startswith("-") and len(text) > 1 and operands == wrapper.operands:
                taken = wrapper.takes(text[1:])
                if not taken:
                    return False
                at += taken
                continue
            if not operands:
                break
            at += 1
            operands -= 1
        inner = list(words[at:])
        while inner and _ASSIGNMENT.match(inner[0].text):
            self.doubt("it sets a variable")
            inner.pop(0)
        if inner and inner[0].text.startswith("-"):
            return False  # an option behind the operands, such as flock's -c
        if inner and wrapper.appends:
            inner.append(Word("", certain=False))
        self.run(inner, depth + 1)
        return True

    def _read_find(self, words: Sequence[Word], depth: int) -> bool:
        inner: list[Word] | None = None
        certain = True
        for word in words:
            certain = certain and word.certain
            if inner is None:
                inner = [] if word.text in wrapper_programs.FIND else None
            elif word.text in {";", "+"}:
                self.run(inner, depth + 1)
                inner = None
            else:
                inner.append(Word(word.text, word.certain and "{}" not in word.text))
        if inner:
            self.run(inner, depth + 1)
        return certain or not any(word.text in wrapper_programs.FIND for word in words)


def _runners(name: str, words: Sequence[Word]) -> Iterator[tuple[str, ...]]:
    yield (name,)
    if words:
        yield (name, words[0].text)


class _Line:
    """The words up to the next operator."""

    def __init__(self, reading: _Parser, depth: int) -> None:
        self.inside = False
        """Whether a word has begun."""
        self._reading = reading
        self._depth = depth
        self._words: list[Word] = []
        self._leads: list[str] = []
        """Of each word what stands before its first quote."""
        self._pieces: list[str] = []
        self._wild: set[str] = set()
        self._lead: str | None = None
        self._target = ""
        """The redirection whose target is the next word."""

    def write(self, text: str, *, wild: bool = False) -> None:
        if wild and (text != "~" or not self._pieces or self._pieces[-1].endswith((":", "="))):
            self._wild.add(text)
        self._pieces.append(text)
        self.inside = True

    def quote(self, text: str) -> None:
        if self._lead is None:
            self._lead = "".join(self._pieces)
        self._pieces.append(text)
        self.inside = True

    def quote_doubly(self, text: str) -> None:
        unquoted, expands = _unquote(text)
        self.quote(unquoted)
        if expands:
            self._wild.add("$")
            self._reading.doubt(_ODD["$"])

    def redirect(self, text: str) -> None:
        if text.startswith("&") or (self.inside and self._pieces[-1] == "}"):
            self._reading.doubt(_DIFFERS)
        self.end_segment() if text.startswith("&") else self.end_word()
        if self._target:
            self._reading.doubt("a redirection goes nowhere")
        self._target = text

    def end_word(self) -> None:
        if not self.inside:
            return
        text = "".join(self._pieces)
        word = Word(text, not _becomes_others(self._wild, text))
        if not self._target:
            self._words.append(word)
            self._leads.append(text if self._lead is None else self._lead)
        elif not word.certain or not _HARMLESS.fullmatch(self._target + text):
            self._reading.doubt("it reads or writes a file")
        if "{" in self._wild and not word.certain:
            self._reading.doubt(_DIFFERS)
        self._pieces, self._wild, self._lead = [], set(), None
        self.inside, self._target = False, ""

    def end_segment(self) -> None:
        self.end_word()
        if self._target:
            self._reading.doubt("a redirection goes nowhere")
            self._target = ""
        self._reading.segment(self._words, self._leads, self._depth)
        self._words, self._leads = [], []


def _becomes_others(wild: set[str], text: str) -> bool:
    """Whether the unquoted characters that are `wild` make a shell put other words in a word's place."""
    return bool(wild - _PAIRED) or wild >= {"[", "]"} or ("{" in wild and ("," in text or ".." in text))


_ODD: Final[Mapping[str, str]] = {
    "$": "it has a variable or a substitution",
    "'": "a quote is not closed",
    '"': "a quote is not closed",
    "\\": "its end is missing",
}


def _unquote(text: str) -> tuple[str, bool]:
    """What is between double quotes, and whether the shell replaces something in it."""
    expands = False

    def is_replaced(match: re.Match[str]) -> str:
        nonlocal expands
        expands = expands or match["expanded"] is not None
        return match["kept"] or match["expanded"] or ""

    return _IN_DOUBLE.sub(is_replaced, text), expands
