"""Echoes: calls in a model's text that repeat a call from somewhere else.

A call in text is compared with the calls in the conversation's untrusted texts, its sources: results, documents, files,
users' messages, and `<document>` in the instructions, which holds a repository's files.

**Comparison.** An echo has the same name and the same arguments as JSON. White space, the order of members, the
spelling of numbers and escapes do not matter. A mention of a tool, such as "use get_weather for Paris", is not a call.
The first text that holds the call decides. If that text is the model's own, the source repeats the model.

**Reading.** From each bracket and line before the tool's name, the call is read as a JSON record, in the reply's
dialect and as `auto`; from the name, as an expression. Each spelling of the source is read: JSON in JSON, HTML.

**Commands.** A fence of commands is an echo if a code block, a line of one or a line after a prompt spells the call.
One ordinary command, such as `pytest -q`, is not: repositories document such commands, and agents run them all day.

**Consequence.** An echo is marked (`InvocationEnded.quoted_from`), so that a person can be asked. In a gateway it
passes as the text that the model wrote, to the letter. Until that is decided, the call is held, if a source has the
tool's name and what was written of the arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from callboard import core
from callboard.dialects import AUTO, Dialect, Parser
from callboard.text.display import replace_invisible
from callboard.text.normal_form import bare, code_blocks, spellings, visible

_Tools: TypeAlias = Sequence[core.ToolDeclaration] | None
_MAX_COST: Final = 5000
"""Reads in one text for one call (a parser counts as ten); then the text counts as a source: decoys hide no call."""
_STARTS: Final = re.compile(r"(?:\n[ \t]*)?(\]<|[\[{<]|>>>|functools|function call|Action:)|\n[ \t]*()")
_MAX_STARTS: Final = 8
"""Brackets and lines before a name from which the call is read."""
_SLACK: Final = 1000
"""Characters of framing and white space that a call may have in a source; half of them before the name."""
_SLICE: Final = 256
"""Characters to parse before the parser's events are checked."""
_WORD: Final = r"(?<!\w){}(?!\w|[ \t]*\w|[.,;!?])"
"""A name, but not as a word of a sentence."""
_NAMES: Final = ("name", "tool", "function", "tool_name", "action")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input", "params", "tool_input", "action_input", "kwargs")
_JSON: Final = json.JSONDecoder(strict=False)
_STRINGS: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(:)?', re.DOTALL)
_FRAGMENT: Final = re.compile(r'"((?:[^"\\]|\\.){32,})', re.DOTALL)
_FENCE: Final = re.compile(r"\s*((`{3,}|~{3,})[^\n]*\n|<code>)")
_ORDINARY: Final = re.compile(r"[\w.-]+(?: +(?!/|~|\S*\.\./|\S*://)[\w./=:@,+\[\]-]+)*")


class SourceText(msgspec.Struct, eq=False, dict=True):
    """One text. `label` names the source; it is "" if the model wrote the text. In a request, somebody asks the model."""

    label: str
    text: str
    is_request: bool = False

    @cached_property
    def spellings(self) -> tuple[tuple[str, str], ...]:
        """The text's spellings, each with its letters and digits."""
        return tuple([(each, bare(each)) for each in spellings(self.text)])

    @cached_property
    def commands(self) -> frozenset[str]:
        """The text's code blocks, their lines, and the lines after its prompts."""
        blocks = {block for text, _ in self.spellings for block in code_blocks(text)}
        return frozenset([*blocks, *[line for block in blocks for line in block.split("\n")]])


class Sources:
    """The texts of the conversation `canisters`. `before` is an earlier round: its texts are used again."""

    def __init__(self, canisters: Sequence[core.Canister] = (), before: Sources | None = None) -> None:
        self.canisters = tuple(canisters)
        self._read: dict[int, tuple[core.Canister, list[SourceText]]] = {} if before is None else before._read  # noqa: SLF001

    @cached_property
    def texts(self) -> list[SourceText]:
        """The texts in the conversation's order, with those that the model wrote."""
        names = {each.identifier: each.name for each in self.canisters if isinstance(each, core.InvocationCanister)}
        for each in self.canisters:
            if id(each) not in self._read:
                self._read[id(each)] = each, list(_texts_of(each, names))
        return [text for each in self.canisters for text in self._read[id(each)][1]]


class TextCall:
    """A call of the tool `name` to look for, with its `raw` arguments, found in `dialect` among `tools`.

    `arguments` is None if they are not a JSON object; `written` is the model's text of the call.
    """

    def __init__(
        self, name: str, arguments: Any, raw: str, written: str = "", *, dialect: Dialect = AUTO, tools: _Tools = None
    ) -> None:
        self.name = name
        self._key = _call_key(arguments, raw)
        strings = [(raw, "")] if arguments is None else _STRINGS.findall(json.dumps(arguments))
        self._strings = [bare(each) for each, colon in strings if not colon and not each.startswith(("[", "{"))]
        self._reach = 2 * max(len(raw), len(str(arguments))) + _SLACK
        self._fence = ("", "")
        if fence := _FENCE.match(written):
            closer = fence[2] or "</code>"
            code = written[fence.end() :].strip().removesuffix(closer).strip()
            if code.startswith(name) or not _ORDINARY.fullmatch(code):
                self._fence = fence[1], closer
        self._rows = tuple(dict.fromkeys((dialect, AUTO)))
        self._tools = tools
        self._cost, self._is_untrusted = 0, True

    def source(self, sources: Sources) -> str:
        """Return the label of the one of `sources` that the call repeats; "" if the call is the model's own."""
        return next((text.label for text in sources.texts if self.is_in(text)), "")

    def is_in(self, text: SourceText) -> bool:
        """Return whether the source `text` contains the call."""
        self._cost, self._is_untrusted = 0, bool(text.label)
        opener, closer = self._fence
        codes = [each for each in text.commands if self._has_strings(bare(each))] if opener else []
        if any(self._is_read(f"{opener}{code}\n{closer}", fenced=True) for code in codes):
            return True
        for spelling, letters in text.spellings:
            if self.name not in spelling or not self._has_strings(letters):
                continue
            is_near: dict[int, bool] = {}
            for match in re.finditer(_WORD.format(re.escape(self.name)), spelling):
                block = match.start() // self._reach
                if block not in is_near:
                    near = spelling[max(0, block - 1) * self._reach : (block + 2) * self._reach]
                    is_near[block] = self._has_strings(bare(near))
                self._cost += is_near[block]
                if is_near[block] and self._is_at(spelling, *match.span(), in_words=text.is_request):
                    return True
                if self._cost > _MAX_COST:
                    return self._is_untrusted
        return False

    def _has_strings(self, letters: str) -> bool:
        return all(each in letters for each in self._strings)

    def _is_at(self, text: str, begin: int, end: int, *, in_words: bool) -> bool:
        """Whether the call is spelled around the name there. If `in_words`, `call add(2, 3)` in a sentence is a wish."""
        rest = text[end : end + self._reach].lstrip("*_`")
        in_words = in_words and re.match(r"\w ", text[max(0, begin - 2) : begin]) is not None
        if rest.startswith("(") and not in_words and self._is_read(f"[{self.name}{rest}"):
            return True
        first, far = max(0, begin - _SLACK // 2), max(0, begin - self._reach)
        before = max([text.rfind(f'"{key}"', far, begin) for key in _ARGUMENTS])
        starts = [first, *[each.start(each.lastindex or 0) for each in _STARTS.finditer(text, first, begin + 1)]]
        starts = [max(far, text.rfind("{", far, max(before, 0))), *starts[-_MAX_STARTS:]]
        for start in reversed(starts):
            part = text[start : end + self._reach]
            if (arguments := self._read_record(part)) is not None:
                return any(_call_key(each) == self._key for each in arguments)
            if self._is_read(part, begin - start):
                return True
        return False

    def _read_record(self, text: str) -> list[Any] | None:
        """The arguments in a JSON object that names the tool; None if the text does not begin with one."""
        record: Any = {}
        with suppress(ValueError, RecursionError):
            record = _JSON.raw_decode(text)[0] if text.startswith("{") else {}
        if self.name not in record and not any(record.get(key) == self.name for key in _NAMES):
            return None
        return [record[key] for key in (*_ARGUMENTS, self.name) if key in record]

    def _is_read(self, text: str, name: int = 0, *, fenced: bool = False) -> bool:
        """Whether the text begins with the call, whose name is at that offset. `fenced` calls are read if asked for."""
        self._cost += 10
        if self._cost > _MAX_COST:
            return self._is_untrusted
        for row in self._rows:
            parser = Parser(self._tools, row)
            for at in range(0, len(text), _SLICE):
                events = [*parser.feed(text[at : at + _SLICE]), *(parser.finish() if at + _SLICE >= len(text) else ())]
                for event in events:
                    if (
                        isinstance(event, core.InvocationEnded)
                        and event.name == self.name
                        and event.offsets is not None
                    ):
                        is_fence = text.startswith(("```", "~~~"), event.offsets[0])
                        if (fenced or not is_fence) and _call_key(event.arguments, event.raw) == self._key:
                            return True
                passed = [each.offsets for each in events if isinstance(each, core.TextPiece | core.InvocationEnded)]
                if not fenced and any(offsets and offsets[1] > name for offsets in passed):
                    break
        return False


class EchoFilter(msgspec.Struct, eq=False):
    """Marks the echoes among a parser's calls. With `to_text` they become text: a `piece_type`, without what `dialect` ignores."""

    sources: Sources
    create_call: Callable[..., TextCall]
    to_text: bool
    piece_type: type[core.TextPiece | core.ReasoningPiece]
    dialect: Dialect
    text: list[str] = []
    begin: int = 0
    """The offset of `text`."""
    held: list[core.Event] | None = None
    written: str = ""
    """The last call's text: a block of commands makes several calls."""
    rest: int | None = None
    """The offset of an echo that has not passed as text yet."""

    def feed(self, text: str, events: list[core.Event], *, over: bool = False) -> list[core.Event]:
        """The parser's events from this text. If `over`, the text has ended."""
        self.text.append(text)
        if self.held is None and self.rest is None and len(events) == 1 and type(events[0]) is self.piece_type:
            return events
        outputs: list[core.Event] = []
        for event in events:
            if offsets := getattr(event, "offsets", None):
                outputs += self._pass_text(offsets[0])
            if isinstance(event, core.InvocationStarted) and self.to_text and self._may_echo(event):
                self.held = []
            if isinstance(event, core.InvocationEnded) and (self.held is not None or not self.to_text):
                outputs += self._end_call(event)
            elif self.held is None:
                outputs.append(event)
            else:
                self.held.append(event)
                if isinstance(event, core.InvocationIncomplete) or self._is_own(self.held):
                    outputs += self.held
                    self.held = None
        if over:
            end = self.begin + sum(map(len, self.text))
            outputs += [*(self.held or []), *self._pass_text(end)]
            self.held, self.text, self.begin = None, [], end
        return outputs

    def _may_echo(self, call: core.InvocationStarted) -> bool:
        fenced = _FENCE.match(self._text_at(call.offsets)) is not None
        texts = [text for text in self.sources.texts if text.label]
        return any((fenced and text.commands) or any(call.name in each for each, _ in text.spellings) for text in texts)

    def _is_own(self, held: list[core.Event]) -> bool:
        """Whether no source has what was written of the arguments, each time the events have doubled."""
        if len(held) & (len(held) - 1):
            return False
        raw = "".join([event.json for event in held if isinstance(event, core.ArgumentsPiece)])
        longest = bare(max(_FRAGMENT.findall(raw), key=len, default=""))[:-8]
        texts = [text for text in self.sources.texts if text.label]
        return not any(longest in letters for text in texts for _, letters in text.spellings)

    def _end_call(self, call: core.InvocationEnded) -> list[core.Event]:
        held, self.held = self.held or [], None
        self.written = self._text_at(call.offsets) or self.written
        source = self.create_call(call.name, call.arguments, call.raw, self.written).source(self.sources)
        if not source:
            return [*held, call]
        text = f"a call of {shorten(call.name)} stands word for word in {source}"
        if not self.to_text:
            return [core.Note("alert", text, call.offsets, "quotation"), replace(call, quoted_from=source)]
        self.rest = self.begin
        return [core.Note("alert", f"{text}: it passes as text", call.offsets, "quotation")]

    def _pass_text(self, end: int) -> list[core.Event]:
        if self.rest is None:
            return []
        span, self.rest = (self.rest, end), None
        text = self._text_at(span)
        for each in (self.dialect, *self.dialect.alternatives):
            for ignored in each.ignored:
                text = text.replace(ignored, "")
        return [self.piece_type(text, offsets=span)] if text else []

    def _text_at(self, span: tuple[int, int] | None) -> str:
        """Return the text of the span. Text before it is not needed again."""
        if span is None:
            return ""
        text = "".join(self.text)[span[0] - self.begin :]
        self.text, self.begin = [text], span[0]
        return text[: span[1] - span[0]]


def shorten(name: str) -> str:
    """The name in one line of at most 80 characters, whatever a model or a page wrote."""
    return replace_invisible(name[:80])


def _texts_of(canister: core.Canister, names: Mapping[str, str]) -> Iterator[SourceText]:
    label = ""
    match canister:
        case core.InvocationCanister(name=name, arguments=arguments, raw=raw):
            yield SourceText("", json.dumps({"name": name, "arguments": raw if arguments is None else arguments}))
            return
        case core.SupervisorCanister(text=text):
            if (begin := text.find("<document")) >= 0:
                yield SourceText("a document in the instructions", text[begin:])
            return
        case core.ResultCanister(invocation_id=identifier):
            of = f"of {shorten(names[identifier])} " if identifier in names else ""
            label = f"the result {of}({shorten(identifier)})"
        case core.DocumentCanister(title=title):
            label = f"the document {shorten(title)!r}" if title else "a document"
        case core.UserCanister():
            label = "a message of the user"
    parts = [canister.title] if isinstance(canister, core.DocumentCanister) else []
    for part in canister.content:
        if isinstance(part, core.FileContent) and part.data:
            named = label and (f"the file {shorten(part.name)!r}" if part.name else f"a file in {label}")
            yield SourceText(named, part.data.decode("utf-8", "replace"))
        parts.append(getattr(part, "text", ""))
    if text := "\n".join([each for each in parts if each]):
        yield SourceText(label, text, is_request=isinstance(canister, core.UserCanister))


def _call_key(arguments: Any, raw: str = "") -> Any:
    """The same value for the same arguments, however they are spelled."""
    with suppress(ValueError, RecursionError):
        return _plain(_JSON.decode(raw or "{}") if arguments is None else arguments)
    return "".join(raw.split())


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {key: _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case str():
            if value[:1] in ("[", "{"):
                with suppress(ValueError):
                    return _plain(_JSON.decode(value))
            return "".join(visible(value).split())
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return json.dumps(value)
