"""Whether the text around a call quotes it.

`Surroundings` reads the text before a call and gives the position of the call, `TextAfterCall` reads the text behind it
and finds whether that makes the call a quotation. Three principles decide, none of which knows a language or a model:

- What marks its lines as somebody else's text makes a quotation of what stands in them: a block quote, a table row,
  indented code, the lines of a diff.
- What is opened before a call and closed behind it quotes the call: quotation marks, tags, comments, environments of
  LaTeX, here-documents. A call behind which nothing closes is none of theirs.
- A reply that calls ends with its calls; one that explains a call goes on in words. This is asked only of a call that
  other characters precede in its line, or to which a sentence or a colon leads.

Law: the position depends on the text alone, not on how it was cut into pieces, and each character is looked
at a constant number of times.
"""

# ruff: noqa: RUF001  # quotation marks that look alike are told apart
from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_BLOCK = 1024 * 1024
"""Characters. Of a text without anything that could be a call, no more than two blocks are remembered."""
_KEPT = 256
"""Characters that are known of a line at its beginning and at its end."""
_LONGEST = 96
"""No token behind a call is longer."""
_TAB = 4
_DEEP = 4
"""Columns from which on a line is indented code (CommonMark)."""
_MOST_OPEN = 64
"""Openers that are remembered, the last ones."""

_NAME = r"[A-Za-z][\w.:-]{0,31}"
_TOKENS = r"""
    (?P<code>(?<!`)(?P<run>`{1,64}+)[^\n]{0,1000}?(?<!`)(?P=run)(?!`))
    | (?P<comment><!--|/\*)
    | (?P<uncomment>-->|\*/)
    | \\begin\{(?P<begin>\w{1,32}\*?)\}
    | \\end\{(?P<end>\w{1,32}\*?)\}
    | (?<![\w)\]])<(?!OWN)(?P<tag>NAME)(?:\s[^<>\n]{0,512})?(?<!/)>
    | </(?!OWN)(?P<untag>NAME)\s?>
    | &lt;(?P<escaped>NAME)(?:\s[^<>\n]{0,512}?)?&gt;
    | &lt;/(?P<unescaped>NAME)&gt;
    | (?P<triple>\"{3}|'{3})
    | (?P<quote>[\"'“”„‟«»‘’‚‹›「」『』]|(?<!`)`(?!`))
    | <<[~-]?\s?[\"']?(?P<here>[A-Za-z_]\w{0,31})[\"']?(?=[^\n]{0,200}\n)
"""


@lru_cache(maxsize=256)
def _tokens(own: frozenset[str]) -> re.Pattern[str]:
    """What opens and closes, but for these tags."""
    names = "|".join(map(re.escape, sorted(own))) or "(?!)"
    return re.compile(_TOKENS.replace("NAME", _NAME).replace("OWN", rf"(?i:{names})[\s>]"), re.VERBOSE)


_CLOSERS = {"“": "”", "„": "“”", "‟": "”", "«": "»", "»": "«", "‘": "’", "‚": "‘’", "‹": "›", "›": "‹"} | {
    "「": "」",
    "『": "』",
}
"""The marks that may close the one that opened. Of « and » each may open: German sets them the other way round."""
_CLOSED_BY = {mark: [each for each in _CLOSERS.values() if mark in each] for each in _CLOSERS.values() for mark in each}
_APOSTROPHE = "’"
_STRAIGHT = frozenset("\"'`")
_AMBIGUOUS = _STRAIGHT | {_APOSTROPHE}
_WORDS = re.compile(r"[^\W\d_]{2,}")
_RULE = re.compile(r"\s[|│┃║](?=\s|\Z)")
"""What parts the cells of a table. A line that begins with a stroke is a row of one, too."""
_STROKES = tuple("|│┃║")
_LEADER = re.compile(r"[ \t]*(?:#+|/{2,}!?|--+|;+|%+|>{2,3}|\$)[ \t]*", re.ASCII)
"""What begins a line of a comment, of a heading, or behind a prompt."""
_RECORD = re.compile(
    r"""
    \d{1,2}:\d{2}:\d{2}                                                       # a time
    | (?<![\w.])(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL)(?!\w)    # a level
    | \S:\d+(?::\d+)?:[ \t]?\Z                                              # a place in a file
    | \A[ \t]*\d+(?::[ \t]|\t|[ \t]*│)                                     # the number of a line
    """,
    re.VERBOSE,
)
"""What begins a line of a log, or of a program's output."""
_QUOTING = re.compile(r"[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?>(?!>>)")
_STOPS = ".,;:!?)。，；：！？）"
_PARTNERS = {"(": ")", "[": "]", "{": "}", "<": ">", "（": "）", "【": "】", "《": "》"}
_SENTENCE = 4
"""Words before a call that may have explained it."""
_EXPLAINING = 5
"""Words behind such a call that show that they did."""
_BRACKETS = frozenset({"{", "["})
_INSIDE = re.compile(r"(?:[\[({]|[\]})\"'\d],)\s*\Z")
"""How a line ends on whose data the next one goes on."""
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_ANNOUNCING = re.compile(r"[:：][ \t\r*_]*\Z")
_ASSIGNING = re.compile(r"(?:[|=(]|:[ \t]*>[+-]?)[ \t\r]*\Z")
"""How a line ends to which the next one belongs, in YAML or in code."""
_EMPHASIS = " \t\r*_"
_ENDING = frozenset(".!?。！？…")


class CallPosition(NamedTuple):
    """Where a call would stand.

    `quoted` says that it is a quotation whatever follows. `closers` are what would make it one, and so would `words`
    words behind it; 0 asks for none.
    """

    quoted: bool
    closers: tuple[str, ...]
    words: int
    words_in_line: int
    """The same of those in the line where the call ends."""
    partners: str
    """Characters that make it one right behind it."""
    bracket: str
    """The same behind white space; "" for none."""
    alone: bool
    """Nothing stands before it in its line."""

    @property
    def plain(self) -> bool:
        return not (self.quoted or self.closers or self.words)


class Surroundings:
    """The text of a reply up to where it is read. `own` are the tags that dialects themselves have."""

    def __init__(self, own: frozenset[str] = frozenset()) -> None:
        self._tokens = _tokens(own)
        self.muted = False
        """Whether what is said stands in a fence and is no prose."""
        self._waiting: list[str] = []
        """What was said and is not looked at yet; "" where a line begins without a newline."""
        self._open: list[str] = []
        """What would close what is open."""
        self._size = 0
        self._line_quoted = False
        self.quoted = False
        """Whether words showed that a call in this reply is a quotation."""
        self.begin()

    def copy(self) -> Surroundings:
        """The same, to go on from here while this one stays as it is."""
        other = object.__new__(Surroundings)
        vars(other).update(vars(self))
        return other.detach()

    def detach(self) -> Surroundings:
        self._waiting = [*self._waiting]
        self._open = [*self._open]
        return self

    def begin(self) -> None:
        """A text begins."""
        self._waiting.clear()
        self._size = 0
        self._open = []
        self._hunk = False
        self._before = ""
        self._text = 0
        self._begin_line()

    def end_line(self) -> None:
        """What is said next begins a line, such as the text behind a call."""
        if self._waiting[-1:] != [""]:
            self._waiting.append("")

    def unmute(self) -> None:
        self.muted = False
        self.end_line()

    def feed(self, text: str, _begin: int = 0) -> None:
        """The text goes on."""
        if self.muted or not text:
            return
        self._waiting.append(text)
        self._size += len(text)
        if self._size >= 2 * _BLOCK:
            self._forget()

    def _forget(self) -> None:
        """Forgets the oldest blocks but one: the same, whatever the pieces were."""
        size = (self._size // _BLOCK - 1) * _BLOCK
        self._size -= size
        at = 0
        while size >= len(self._waiting[at]):
            size -= len(self._waiting[at])
            at += 1
        self._waiting[:] = [self._waiting[at][size:], *self._waiting[at + 1 :]]

    def position(self, opener: str, indent: str = "") -> CallPosition:
        """Where a call stands that begins with this, `indent` behind what was said."""
        self._look()
        lead = self._head + indent if len(self._head) < _KEPT else self._head
        alone = not lead.strip()
        self._line_quoted = self._line_quoted or self._quotes(lead, opener, alone=alone)
        words = self._words(alone=alone)
        closers = tuple(dict.fromkeys(self._open))
        return CallPosition(
            self._line_quoted, closers, *words, self._partners(alone=alone), "" if alone else self._bracket(), alone
        )

    def _quotes(self, lead: str, opener: str, *, alone: bool) -> bool:
        if alone:
            deep = len(lead.expandtabs(_TAB)) >= _DEEP
            return deep or (self._hunk and lead.startswith(" ")) or (opener in _BRACKETS and self._enclosed)
        if self._ruled or lead.lstrip().startswith(_STROKES) or lead in {"+", "-"}:
            return True
        if lead.lstrip()[0] == ">" == opener[:1]:
            return False
        if _QUOTING.match(lead) or _LEADER.fullmatch(lead):
            return True
        if _RECORD.search(lead):
            return True
        return (self._hunk and lead[0] in "+- ") or self.quoted

    def _words(self, *, alone: bool) -> tuple[int, int]:
        """How many words behind a call, and how many in its line, show that it was explained, not made."""
        if alone:
            if self._assigned:
                return 1, 1
            words = _EXPLAINING if self._announced or self._text >= _SENTENCE else 0
            return words, words
        if not self._wordy:
            return 1, 1
        return (3, 3) if (self._tail.rstrip(_EMPHASIS) or " ")[-1] in _ENDING else (2, 1)

    def _partners(self, *, alone: bool) -> str:
        """What right behind a call would show that a sentence ends there, or that it is wrapped."""
        if alone:
            return ""
        last = self._tail[-1:]
        wrapped = "" if last.isalnum() or last.isspace() else _PARTNERS.get(last, last)
        return f"{_STOPS}{wrapped}"

    def _bracket(self) -> str:
        """The bracket that would close the one before the call, white space between."""
        return _PARTNERS.get(self._tail.rstrip(" ")[-1:], "")

    # What was said is looked at when somebody asks.

    def _look(self) -> None:
        if not self._waiting:
            return
        pieces: list[str] = []
        for piece in (*self._waiting, None):
            if piece:
                pieces.append(piece)
                continue
            if pieces:
                self._scan("".join(pieces))
                pieces.clear()
            if piece is not None:
                self._begin_line()
        self._waiting.clear()
        self._size = 0

    def _begin_line(self) -> None:
        self._head = self._tail = ""
        self._announced = self._assigned = self._enclosed = False
        self._wordy = self._ruled = self._line_quoted = False

    def _scan(self, text: str) -> None:
        self._scan_tokens(text)
        first, *rest = text.split("\n")
        self._go_on(first)
        for line in rest:
            self._close_line()
            self._go_on(line)
        self._before = text[-1:] or self._before

    def _go_on(self, text: str) -> None:
        """The line goes on."""
        if len(self._head) < _KEPT:
            self._head = (self._head + text)[:_KEPT]
        self._tail = (self._tail + text)[-_KEPT:]
        words = len(_WORDS.findall(text))
        self._text += words
        self._wordy = self._wordy or words > 0
        self._ruled = self._ruled or _RULE.search(text) is not None

    def _close_line(self) -> None:
        head = self._head
        if not head.strip():
            if self._hunk and head == "" and self._tail == "":
                self._hunk = False
        else:
            self._hunk = bool(_HUNK.match(head)) or (self._hunk and head[0] in "+-\\ ")
            self._enclosed = _INSIDE.search(self._tail) is not None
            self._announced = _ANNOUNCING.search(self._tail) is not None
            self._assigned = _ASSIGNING.search(self._tail) is not None
        if self._open and head.strip():
            here = f"<<{head.strip()}"
            if here in self._open:
                self._open.remove(here)
        self._head = self._tail = ""
        self._wordy = self._ruled = self._line_quoted = False

    def _scan_tokens(self, text: str) -> None:
        for token in self._tokens.finditer(text):
            match token.lastgroup:
                case "comment":
                    self._opens("-->" if token[0] == "<!--" else "*/")
                case "uncomment" | "end" | "unescaped":
                    self._closes(token[0])
                case "begin":
                    self._opens(f"\\end{{{token['begin']}}}")
                case "tag":
                    self._opens(f"</{token['tag']}>")
                case "untag":
                    self._closes(f"</{token['untag']}>")
                case "escaped":
                    self._opens(f"&lt;/{token['escaped']}&gt;")
                case "triple":
                    if not self._closes(token[0]):
                        self._opens(token[0])
                case "quote":
                    self._mark(token, text)
                case "here":
                    self._opens(f"<<{token['here']}")

    def _mark(self, token: re.Match[str], text: str) -> None:
        mark, begin, end = token[0], token.start(), token.end()
        before = text[begin - 1] if begin else self._before
        after = text[end : end + 1]
        if mark in _STRAIGHT:
            opens = _flanks_left(before) and (not after.isspace() or after == "\n")
            # Of a kind only one is open: another opener shows that the one before was a stray. What stands right
            # before a call opens whatever is before it, such as the f of an f-string.
            closed = self._closes(mark)
            if opens or not (closed or after):
                self._opens(mark)
        elif (mark == _APOSTROPHE and before.isalnum() and after.isalnum()) or any(
            self._closes(closer) for closer in _CLOSED_BY.get(mark, ())
        ):
            return
        elif mark in _CLOSERS:
            self._opens(_CLOSERS[mark])

    def _opens(self, closer: str) -> None:
        if len(self._open) == _MOST_OPEN:
            del self._open[0]
        self._open.append(closer)

    def _closes(self, closer: str) -> bool:
        """Closes what was opened last of this kind."""
        for at in range(len(self._open) - 1, -1, -1):
            if self._open[at] == closer:
                del self._open[at]
                return True
        return False


def _flanks_left(before: str) -> bool:
    """Whether a straight quotation mark behind this character may open."""
    return not before or before.isspace() or before in "([{<=:,;>-—–/\\`~|"


class TextAfterCall:
    """The text behind a call, up to what shows that the call is quoted.

    `feed` gives the offset up to which that shows a quotation, and None as long as nothing shows one: what closes what
    is open quotes all that is before it, words quote the calls before them.
    """

    def __init__(self, place: CallPosition) -> None:
        self._place = place
        self._words_left = place.words
        self._left_in_line = place.words_in_line
        self._closers = {
            mark for closer in place.closers for mark in (closer if closer[0] in _CLOSED_BY else (closer,))
        }
        self._tokens = _BEHIND["`" in self._closers, any(closer.startswith("<<") for closer in self._closers)]
        self._strays = set[str]()
        self._begun = False
        self._since = 0
        """Where the text behind the last call begins."""
        self._rest = ""
        self._offset = -1
        """Where the rest begins."""
        self._from = 0
        """What of the rest was looked at already; it is kept for what comes before a token."""

    def feed(self, text: str, begin: int) -> int | None:
        if begin != self._offset + len(self._rest):
            # A call stands before it.
            shows = self.finish()
            self._rest, self._offset, self._from, self._since = "\n", begin - 1, 1, begin
            if shows is not None:
                return shows
            if not self._begun and text[0] in self._place.partners:
                return begin
        if not self._begun and (first := text.lstrip(" ")):
            self._begun = True
            if self._place.bracket and first[0] == self._place.bracket:
                return self._since
        self._rest += text
        return self._look(len(self._rest) - _LONGEST)

    def finish(self) -> int | None:
        """The same where no more follows."""
        return self._look(len(self._rest))

    def _look(self, sure: int) -> int | None:
        """Looks at what ends before that place: there it is sure what it is."""
        shows = None
        for token in self._tokens.finditer(self._rest, self._from):
            if token.end() > sure:
                self._from = max(self._from, min(token.start(), sure))
                break
            self._from = token.end()
            shows = self._shows(token)
            if shows is not None:
                break
        else:
            self._from = max(self._from, sure)
        keep = max(0, self._from - 1)
        self._rest, self._offset, self._from = self._rest[keep:], self._offset + keep, self._from - keep
        return shows

    def _shows(self, token: re.Match[str]) -> int | None:
        kind = token.lastgroup
        if kind == "closer" and self._closes(token):
            return self._offset + token.end()
        if kind == "line" and f"<<{token[0].strip()}" in self._closers:
            return self._offset + token.end()
        if kind == "newline":
            self._left_in_line = 0
        if kind == "word" or (kind == "line" and _WORDS.search(token[0])):
            self._words_left -= 1
            self._left_in_line -= 1
            if self._words_left == 0 or self._left_in_line == 0:
                return self._since
        return None

    def _closes(self, token: re.Match[str]) -> bool:
        mark = "".join(token[0].split())
        if mark not in self._closers:
            return False
        if mark not in _AMBIGUOUS:
            return True
        before = self._rest[token.start() - 1 : token.start()]
        after = self._rest[token.end() : token.end() + 1]
        if before in {" ", "\t"} and after.strip():
            self._strays.add(mark)  # It opens another quotation: the one before was no opener.
        return mark not in self._strays and not after.isalnum()


_CODE = r"(?P<code>`[^`\n]{1,80}`(?!`))|"
_LINE = r"(?P<line>(?<=\n)[ \t]{0,32}[A-Za-z_]\w{0,31}(?=\s|\Z))|"
_CLOSER = (
    rf"(?P<closer></{_NAME}\s?>|&lt;/{_NAME}&gt;|\\end\{{\w{{1,32}}\*?\}}|-->|\*/|\"{{3}}|'{{3}}"
    rf"|[{''.join(_CLOSED_BY)}\"']|(?<!`)`(?!`))|(?P<newline>\n)|(?P<word>[^\W\d_]{{2,64}}+)"
)
_BEHIND = {
    (backtick, here): re.compile(f"{'' if backtick else _CODE}{_LINE if here else ''}{_CLOSER}")
    for backtick in (False, True)
    for here in (False, True)
}
"""What may stand behind a call and mean something, by whether a backtick and a here-document are open."""
