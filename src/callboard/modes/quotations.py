"""Whether a call stands in a text already.

`Quotation` is a call that was found in a model's text, made ready to be looked for. It stands in a text where the
text spells the same call: the same name with the same arguments and nothing else, in whatever dialect, whatever the
order of the arguments, the white space and the escapes. That is read by one lenient reader for all dialects instead of
their own parsers, because a source need not be a well-formed reply: it holds the call in a JSON string, in a table, in
HTML, after other words.

From where the name stands, the reader accepts punctuation, the words that dialects put around calls, and the call's
own keys, each followed by its value. Any other word ends it. So `get_weather(city="Paris")` is found in
`<function=get_weather><parameter=city>Paris</parameter>`, and is not in "use get_weather for Paris": a text that
talks about a tool is no call of it.

A block of commands or code has no name and no keys. It stands in a text if all of its lines are lines of the text's own
code (`SourceText.code_lines`).

A lookup costs as much as the call for each place where the text spells the tool's name; most places are left at the
first word behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

import msgspec

from callboard.core import InvocationCanister
from callboard.dialects import NotSpellable, render_call
from callboard.dialects.table import ACTION_KEYS, DIALECTS
from callboard.modes.sources import Sources, SourceText, command_lines
from callboard.text.normal_form import normal_form, squeeze

_SLACK: Final = 4000
"""Characters of framing and white space that a call may have in a text besides its own."""
_NEAR: Final = 400
"""The same before its name."""
_WORD: Final = re.compile(r"\w[\w.]*")
_ATTRIBUTE: Final = re.compile(
    r"""(?:\w{0,30}id|index|type|string)["'\]]{0,2}\s?(?:[:=]|(?<=\]))\s?"""
    r"""(?:"[^"]{0,200}"|'[^']{0,200}'|[\w.-]{1,200})"""
)
"""What says something of a call besides its name and arguments, such as `"id": "call_1"` and `type="string"`."""
_ATTRIBUTES: Final = ("id", "index", "type", "string")
_IN_WORDS: Final = re.compile(r"[\w,.;!?)] \Z")
"""What stands before a name in a sentence, such as `call add {"a": 2}`: who says that to a model wants the call."""
_COUNTED: Final = re.compile(r":\d{1,4}(?!\w)")
"""What stands behind a name that counts its calls: `functions.NAME:0`."""
_MARKED: Final = re.compile(r"""["'`]?\s?(?:[:=>|]|\]|<)""")
"""What stands behind a key that is one, and not a word of a sentence."""
_FRAMED: Final = re.compile(r"[<{]|\b(?:input|args|arguments|parameters|params)\b")
"""What stands between a name and a value without a key, if that is a call's."""
_ENDS: Final = re.compile(r"""\s?(?:[)\]}<|"'`]|\n|$|--|[\w-]{1,60}[=:]|,(?=\s?["']?[\w.-]{1,100}["']?\s?[:=]))|\n""")
"""What stands behind a value that nothing quotes."""
_LITERAL: Final = re.compile(r"[-+.\de]+|true|false|null|none")
_MORE: Final = re.compile(
    r"""["'`]{0,3}\s?(?:"""
    r"""[,;]\s?["']?(?P<member>[\w.-]{1,100})["']?\s?[:=](?!=)"""  # , "limit": and , limit=
    r"""|[,;]\s?(?!""|'')["'\d-]"""  # , 5 and , "more": arguments without keys
    r"""|\s?--(?P<flag>\w[\w-]{0,100})"""
    r"""|</[^<>]{1,100}>\s?<(?!/)(?!\w*tool|\w*function|invoke|\|)(?P<tag>[^<>]{1,200})>"""  # </parameter><parameter=limit>
    r""")"""
)
"""What stands behind the last value of a call that has more of them than this one."""
_BLANK: Final = re.compile(
    r"""["'`]?\s?[:=>|]{0,2}\s?(?:"\s?"|'\s?'|\[\s?\]|\{\s?\}|\[\s?[\[{]|\{\s?[\[{]|[<),]|$|\n)"""
)
"""What stands behind a key whose value is empty."""
_EMPTY_VALUE: Final = re.compile(r"""[\s:=>]{0,4}(?:"\s?"|'\s?'|(?:[\[{]\s?){1,8}(?:[\]}]\s?){1,8}|(?=</))""")
_QUOTES: Final = "\"'`"
_CLOSERS: Final = (")", "]", "}", ">", "`")
_MOST_NAMES: Final = 3
"""Places that are tried of a word that a call may hold several times."""
_MOST_WORDS: Final = 32
"""Words and attributes that stand between two values at the most."""
_MOST_MARKS: Final = 200
"""The same for other characters."""
_FENCE: Final = re.compile(r"\s*(?:(?P<fence>`{3,}|~{3,})[^\n]*\n|<code>)(?P<code>.*)", re.DOTALL)
_CODE_END: Final = re.compile(r"\s*(?:`{3,}|~{3,}|</code>)\s*\Z")
_FRAGMENT: Final = re.compile(r'"((?:[^"\\]|\\.){32,})', re.DOTALL)
_TORN: Final = re.compile(r"[&\\][^&\\]{0,40}\Z")
_OTHER_ESCAPES: Final = re.compile(r"\\[bf]")
_LOST: Final = 8
"""Characters at the end of a fragment that may be read otherwise once more has come."""
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input", "params")

_MORE_WORDS: Final = (
    "action analysis arg arg_key arg_type arg_value argument array assistant boolean call call_id calls cdata code "
    "commentary constrain content false final function functions id index int integer invoke item items json key message "
    "null number object output param parameter params python recipient request response sep start string to tool tool_args "
    "opensource tool_call tool_calls tool_code tool_sep tool_input tool_use tools true type value"
)
_EXAMPLE: Final = InvocationCanister("qqq", "www", {"eee": "rrr"}, "")
_TEXT: Final = re.compile(r"[a-z]\w*")


@cache
def _framing() -> frozenset[str]:
    """The words that dialects put around calls."""
    spelled = [
        marker
        for dialect in DIALECTS.values()
        for _, frame in dialect.all_frames()
        for marker in (*frame.openers, *frame.closers)
    ]
    for dialect in DIALECTS.values():
        with suppress(NotSpellable):
            spelled.append(render_call(dialect, _EXAMPLE))
    words = {word for each in spelled for word in _TEXT.findall(normal_form(each))}
    own = {
        _EXAMPLE.identifier,
        _EXAMPLE.name,
        *(_EXAMPLE.arguments or {}),
        *map(str, (_EXAMPLE.arguments or {}).values()),
    }
    return frozenset([*words - own, *(key.casefold() for key in ACTION_KEYS), *_MORE_WORDS.split()])


class _Value(msgspec.Struct, frozen=True):
    """A value of the arguments without white space, in each way it may be spelled, and the key it stands behind."""

    key: str
    spelled: tuple[str, ...]


class Quotation:
    """A call to be looked for. `written` is the text that it was found in, "" if that is not known.

    `arguments` is None for what is no JSON object; `raw` is then all there is of them.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any] | None, raw: str, written: str = "") -> None:
        self.name = normal_form(name)
        self.is_raw = arguments is None
        """Whether the values stand there as they are: not behind their keys, and not as whole values."""
        self._blank = False
        self.values: list[_Value] = []
        self.keys: re.Pattern[str] | None = None
        if arguments is None:
            form = squeeze(normal_form(raw))
            self.values = [_Value("", (form,))] if form else []
        else:
            keys: set[str] = set()
            self.values = [value for value in _values(arguments, keys) if any(value.spelled)]
            self._blank = bool(keys) and not self.values
            if self._blank:
                # Nothing but the keys is there to be found, such as in `{"path": ""}`.
                self.values = [_Value("", (squeeze(key),)) for key in keys]
                self.is_raw = True
            elif keys:
                longest = sorted(keys, key=len, reverse=True)
                self.keys = re.compile(rf"(?:{'|'.join(map(re.escape, longest))})(?!\w)")
        self.firsts: dict[str, list[_Value]] = {}
        """The values by their first characters."""
        for value in self.values:
            for first in {each[0] for each in value.spelled if each}:
                self.firsts.setdefault(first, []).append(value)
        self._size = sum([len(value.spelled[0]) for value in self.values])
        self.reach = 2 * self._size + _SLACK
        """Characters in which the arguments stand, if they do."""
        self._code = _code_of(written)
        self._written = "" if self._code else squeeze(normal_form(written)).strip(",;")
        framed = bool(self.values) or self._written.startswith(("[", "{", "<", "`"))
        if not framed or not self._written.endswith(_CLOSERS):
            self._written = ""  # such as `Action Input: ls`, with which a longer call begins, too
        self._spelled = squeeze(normal_form(raw)) if arguments else ""
        """The arguments as the model spelled them."""
        self._around = tuple(self._split_at(squeeze(self.name)))
        """The text of the call, up to its name and behind it, at the first places where the name stands in it."""

    def source(self, sources: Sources) -> str:
        """The label of the source that the call repeats; "" if it is the model's own."""
        return sources.first_with(self.stands_in)

    def _closes(self, tag: str) -> bool:
        return tag == self.name or re.split(r"[:|\s]", tag)[-1] in _TAGS or tag.endswith("tool_call")

    def _split_at(self, name: str) -> Iterator[tuple[str, str]]:
        at = 0
        for _ in range(_MOST_NAMES if name else 0):
            at = self._written.find(name, at)
            if at < 0:
                return
            at += len(name)
            yield self._written[:at], self._written[at:]

    def is_framing(self, word: str) -> bool:
        """Whether a word, or several with dots between them, is one that dialects put around calls."""
        framing = _framing()
        return all(each in framing or each == self.name for each in word.split(".") if each)

    def stands_in(self, text: SourceText) -> bool:
        if self._code and self._is_code_of(text):
            return True
        if not self.name:
            return False
        return any(
            self._stands_at(form, end)
            for form, ends in text.places(self.name)
            for end in ends
            if not (text.is_request and self._is_in_words(form, end - len(self.name)))
        )

    @staticmethod
    def _is_in_words(form: str, begin: int) -> bool:
        return _IN_WORDS.match(form, max(0, begin - 2), begin) is not None

    # Blocks of code.

    def _is_code_of(self, text: SourceText) -> bool:
        lines, name = self._code, squeeze(self.name)
        values = [value.spelled for value in self.values]
        if len(values) == 1 and all(line in values[0][0] for line in lines):
            return all(line in text.code_lines for line in lines)
        # A command a line: this call is one of them.
        own = [line for line in lines if line.startswith(name)]
        whole = [line for line in own if all(any(each in line for each in value) for value in values)]
        return any(line in text.code_lines for line in whole or own)

    # Calls.

    def _stands_at(self, form: str, end: int) -> bool:
        """Whether the call is spelled around the name that ends there."""
        if not self.values:
            return self._is_empty(form, end) or self._is_written(form, end)
        return (
            self._follows(form, end)
            or self._precedes(form, end)
            or self._is_written(form, end)
            or self._is_spelled(form, end)
        )

    def _is_written(self, form: str, end: int) -> bool:
        """Whether the very text of the call stands there."""
        return any(
            (not behind or (end < len(form) and _end_of(form, end, behind) >= 0))
            and squeeze(form[max(0, end - 2 * len(before) - 64) : end]).endswith(before)
            for before, behind in self._around
        )

    def _is_spelled(self, form: str, end: int) -> bool:
        """Whether the very arguments stand behind the name, with nothing between but what dialects put there."""
        if not self._spelled:
            return False
        between, match, _ = squeeze(form[end : end + 2 * len(self._spelled) + _NEAR]).partition(self._spelled)
        return bool(match) and len(between) <= _NEAR and all(map(self.is_framing, _WORD.findall(between)))

    def _follows(self, form: str, end: int) -> bool:
        scan = _Scan(self, form, end, keyed=True)
        if not scan.read() and self.keys is not None:
            scan = _Scan(self, form, end)
            scan.read()
        if scan.is_short or self._goes_on(form, scan.at) or (self._blank and not _BLANK.match(form, scan.at)):
            return False
        if self.is_raw or not scan.without_keys:
            return True
        begin = end - len(self.name)
        return (
            form.startswith("(", end)
            or form.endswith(">>>", 0, begin)
            or _FRAMED.search(form, end, scan.first) is not None
        )

    def _goes_on(self, form: str, at: int) -> bool:
        """Whether the text's call has more arguments from there on than this one, besides its own empty ones."""
        while match := _MORE.match(form, at):
            own = self.keys is not None and any(
                self.keys.search(match[group] or "") for group in ("member", "flag", "tag")
            )
            if not own:
                return True
            at = match.end()
            if (blank := _EMPTY_VALUE.match(form, at)) is None:
                return True
            at = blank.end()
        return False

    def _precedes(self, form: str, end: int) -> bool:
        """Whether the arguments stand before the name, as members of an object may."""
        begin = end - len(self.name)
        if form[begin - 1 : begin] not in {'"', "'"} or not re.match(r"""["']\s?[,}]""", form[end : end + 3]):
            return False
        first = max(0, begin - 2 * self._size - _NEAR)
        at = begin
        for _ in range(_MOST_NAMES):
            at = max([form.rfind(word, first, at) for word in _ARGUMENTS])
            if at < 0:
                return False
            scan = _Scan(self, form, at)
            if scan.read() and scan.at <= begin and not _MORE_BEFORE.match(form, scan.at):
                return all(map(self.is_framing, _WORD.findall(_ATTRIBUTE.sub("", form[scan.at : begin]))))
        return False

    def _is_empty(self, form: str, end: int) -> bool:
        """Whether a call without arguments, or with empty ones only, is spelled there."""
        begin = end - len(self.name)
        if form.startswith(("()", "( )"), end):
            line_begin, line_end = form.rfind("\n", 0, begin) + 1, form.find("\n", end)
            before = form[line_begin:begin].strip()
            behind = form[form.index(")", end) + 1 : line_end if line_end >= 0 else len(form)].strip()
            alone = not before.strip(">`-*") and not behind.strip("`")
            listed = before.endswith(",") and behind.startswith(("]", ","))
            return alone or listed or before.endswith(("[", "action:", "print("))
        if (word := _NEXT_WORD.match(form, end)) and not self.is_framing(word[1]) and not word[1].endswith("id"):
            return False
        if match := _EMPTY.match(form, end):
            tag = match["tag"]
            return tag is None or (form[begin - 1 : begin] in {">", "=", '"', "<"} and self._closes(tag))
        if form[begin - 1 : begin] not in _QUOTES or form[end : end + 1] not in _QUOTES:
            return False
        return _EMPTY_BEFORE.search(form[max(0, begin - _NEAR) : begin]) is not None


_NEXT_WORD: Final = re.compile(r"""(?::\d{1,4}(?!\w))?+[\s"'`,:|\]>)]{0,40}+(\w+)""")
_EMPTY: Final = re.compile(
    r"""(?::\d{1,4}(?!\w))?[\s"'`,:|\]>)]{0,40}(?:<\|[^<>]{0,60}\|>|<\w{0,20}sep\w{0,20}>|(?:\w{0,20}id|index)["'\]]{0,2}\s?[:=]?\s?["']?[\w.-]{1,80}["']?,?\s?"""
    r"""|\[\w{1,20}\]|```\w{0,10}|["'`,:|>\s]|\b(?:action input|arguments|parameters|args|input|params|json|code|tool_input)\b){0,12}"""
    r"""(?:["']?\{\s?\}|:\s?(?:null|none|""|'')|</(?P<tag>[\w:.|-]{1,60}(?:(?<=\|)\s\w{1,20})?)|/>|<\|close\|>|(?<=action input:)\s?(?:\n|$))"""
)
_EMPTY_BEFORE: Final = re.compile(
    r"""["'](?:arguments|parameters|args|input|params)["']\s?:\s?["']?(?:\{\s?\}|null|"")["']?\s?,\s?["']\w{1,20}["']\s?:\s?["']\Z"""
)
_MORE_BEFORE: Final = re.compile(r"""["'`]{0,3}\s?,\s?["']?(?!name|tool|function|id|type)[\w.-]{1,100}["']?\s?[:=]""")
_TAGS: Final = frozenset({"tool_call", "function", "invoke", "tool", "tool_use", "call", "action", "code"})


class _Scan:
    """Reads a call's arguments in a form, from a place on. `at` is behind the last value, `first` before the first.

    With `keyed` each value that has a key stands behind it.
    """

    def __init__(self, call: Quotation, form: str, at: int, *, keyed: bool = False) -> None:
        self._keyed = keyed
        self._call = call
        self._form = form
        self._limit = min(len(form), at + call.reach)
        self._count = len(call.values)
        self._remaining = call.firsts
        self._key = ""
        self.at = at
        self.first = at
        self.without_keys = False

    def read(self) -> bool:
        """Whether all values stand there, each behind its key, and nothing else between them."""
        form, keys = self._form, self._call.keys
        if counted := _COUNTED.match(form, self.at):
            self.at = counted.end()
        words = marks = repeated = 0
        while self._count:
            if self.at >= self._limit or words > _MOST_WORDS or marks > _MOST_MARKS:
                return False
            char = form[self.at]
            if char in self._remaining and self._value():
                words = marks = 0
            elif not (char.isalnum() or char == "_"):
                self.at += 1
                marks += 1
            elif keys is not None and self._begins_word() and (match := keys.match(form, self.at)):
                if _MARKED.match(form, match.end()) or form.endswith("--", 0, self.at):
                    self._key = match[0]
                self.at = match.end()
                words += 1
            else:
                word = _WORD.match(form, self.at)
                if word is None:
                    return False
                attribute = _ATTRIBUTE.match(form, self.at) if word[0].endswith(_ATTRIBUTES) else None
                if attribute is None:
                    repeated += word[0] == self._call.name
                    if repeated > 1 or not self._call.is_framing(word[0]):
                        return False
                self.at = (attribute or word).end()
                words += 1
        return True

    @property
    def is_short(self) -> bool:
        """Whether a value is missing."""
        return self._count > 0

    def _begins_word(self) -> bool:
        return not (self._form[self.at - 1].isalnum() and self._form[self.at].isalnum())

    def _value(self) -> bool:
        """Reads one of the values that are left, if it stands here: the one of the key, else any."""
        for value in self._remaining.get(self._form[self.at], ()):
            if value.key and value.key != self._key and (self._key or self._keyed):
                continue
            for spelled in value.spelled:
                end = _end_of(self._form, self.at, spelled)
                if end >= 0 and (self._call.is_raw or self._is_whole(end, spelled)):
                    self._take(value, end)
                    return True
        return False

    def _take(self, value: _Value, end: int) -> None:
        if self._remaining is self._call.firsts:
            self._remaining = {first: [*values] for first, values in self._remaining.items()}
            self.first = self.at
        for first in {each[0] for each in value.spelled}:
            self._remaining[first].remove(value)
        self._count -= 1
        self.without_keys |= bool(value.key) and not self._key
        self.at = end

    def _is_whole(self, end: int, spelled: str) -> bool:
        """Whether what stands from here to that end is a whole value, and not the beginning of a longer one."""
        form = self._form
        opening = form[self.at - 1]
        if not self._begins_word():
            return False
        if opening in _QUOTES and not spelled.startswith(opening):
            return form.startswith(opening, end) or form.startswith((" " + opening, "\n" + opening), end)
        if form[self.at - 2 : self.at].strip().endswith(">"):
            return form.startswith(("<", " <", "\n<", "]"), end)
        if form.startswith(",", end) and _LITERAL.fullmatch(spelled):
            return True
        return _ENDS.match(form, end) is not None


def may_repeat(name: str, written: str, sources: Sources) -> bool:
    """Whether a call of that tool, whose text begins so, may stand in a source."""
    form = normal_form(name)
    if any(text.label and text.places(form) for text in sources.texts):
        return True
    return _FENCE.match(written) is not None and any(text.label and text.code_lines for text in sources.texts)


def may_continue(raw: str, sources: Sources) -> bool:
    """Whether arguments that begin so may stand in a source: False once a text of theirs stands in none."""
    fragments = _FRAGMENT.findall(raw)
    if not fragments:
        return True
    fragment = _TORN.sub("", _OTHER_ESCAPES.split(max(fragments, key=len))[0])
    piece = squeeze(normal_form(fragment))[:-_LOST]
    return any(text.label and any(piece in each for each in text.squeezed) for text in sources.texts)


def _values(arguments: Mapping[str, Any], keys: set[str]) -> Iterator[_Value]:
    """What the arguments hold at their leaves. The keys are added to `keys`."""
    remaining: list[tuple[str, Any]] = [("", arguments)]
    while remaining:
        key, value = remaining.pop()
        if isinstance(value, Mapping):
            for each, held in value.items():
                form = normal_form(str(each))
                if form:
                    keys.add(form)
                remaining.append((form or key, held))
        elif isinstance(value, (list, tuple)):
            remaining += [(key, each) for each in value]
        else:
            yield _Value(key, _spellings(value))


def _spellings(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (squeeze(normal_form(value)),)
    if value is None:
        return ("null", "none")
    return (str(value).casefold(),)


def _end_of(form: str, at: int, spelled: str) -> int:
    """Where what is spelled without white space ends in the form, if it begins there; else -1."""
    if form.startswith(spelled, at):
        return at + len(spelled)
    size = 1
    while True:  # no more is looked at than eight times what is the same
        if not squeeze(form[at : at + 2 * size + 8]).startswith(spelled[:size]):
            return -1
        if size >= len(spelled):
            break
        size *= 8
    remaining = len(spelled)
    while remaining:
        remaining -= form[at] not in " \n"
        at += 1
    return at


def _code_of(written: str) -> Sequence[str]:
    """The lines of a block of code or commands, () for what is none."""
    match = _FENCE.match(written)
    if match is None:
        return ()
    code = _CODE_END.sub("", match["code"])
    lines = command_lines(normal_form(code))
    return () if lines and lines[0].startswith(("{", "[")) else lines
