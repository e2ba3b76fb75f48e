"""What a conversation shows a model that the model did not say itself.

`Sources` are the texts of a conversation's results, documents, files and users, in their order, and between them what
the model said and called. `first_with` looks for the first text in which something stands: if that is a source, whoever
says it now repeats it; if it is the model's own, the source repeats the model.

Nothing is read before it is asked for, so a conversation in which no call is found in text costs nothing. A text is
brought into its normal form once, and searched once for each tool; a later round of the same conversation takes over
what was read (`Sources(canisters, before)`), so each round pays for its new texts only.

What supervisors say is the operator's own, and no source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import is_
from typing import Final

import msgspec

from callboard.core import (
    AssistantCanister,
    Canister,
    Content,
    DocumentCanister,
    FileContent,
    InvocationCanister,
    ReasoningContent,
    RefusalContent,
    ResultCanister,
    TextualContent,
    UserCanister,
)
from callboard.text.display import replace_invisible
from callboard.text.normal_form import may_hide, normal_form, squeeze, without_prefixes

_MAX_TITLE: Final = 80
"""Characters of a title, a name or an identifier that a label repeats."""
_CODE_OPENS: Final = re.compile(r"(?<![`~])(`{3,9}|~{3,9})(?![`~])[^\n`]{0,200}\n|<(pre|code)\b[^>]{0,200}>")
_CODE_MARKS: Final = ("```", "~~~", "<pre", "<code", "$ ", "% ")
_TAG: Final = re.compile(r"<[^<>]{0,200}>")
_PROMPT: Final = re.compile(r"(?m)^[$%] (.+)$")
_COMMAND: Final = re.compile(r"^[$%>] ?")


class SourceText:
    """One text. `label` names the source; it is "" for what the model said itself.

    `is_request` says that somebody asks the model in it, so that a call in its plain words is a wish.
    """

    def __init__(self, label: str, text: str, *, is_request: bool = False) -> None:
        self.label = label
        self.is_request = is_request
        self._text = text
        self._places: dict[str, tuple[tuple[str, tuple[int, ...]], ...]] = {}

    @cached_property
    def forms(self) -> tuple[str, ...]:
        """Its normal form; that without what stands before its lines, and that without HTML's tags, if there are such."""
        form = normal_form(self._text)
        forms = [form, without_prefixes(form)]
        if "</" in self._text:  # as in code that is coloured
            forms.append(normal_form(_TAG.sub(" ", self._text)))
        return tuple(dict.fromkeys(forms))

    @cached_property
    def squeezed(self) -> tuple[str, ...]:
        """The forms without white space."""
        return tuple([squeeze(form) for form in self.forms])

    @cached_property
    def code_lines(self) -> frozenset[str]:
        """The lines, without white space, of its code: of fences, of `<pre>` and `<code>`, and behind prompts."""
        if not may_hide(self._text) and not any(mark in self._text.casefold() for mark in _CODE_MARKS):
            return frozenset()
        blocks = [block for form in self.forms for block in _code(form)]
        return frozenset([line for block in blocks for line in command_lines(block)])

    def places(self, name: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """For each form in which the name stands as a word: the form, and where the name ends."""
        positions = self._places.get(name)
        if positions is None:
            positions = self._places[name] = tuple(self._find_positions(name))
        return positions

    def _find_positions(self, name: str) -> Iterable[tuple[str, tuple[int, ...]]]:
        if not may_hide(self._text) and name not in self._text.casefold():
            return
        word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        for form in self.forms:
            if ends := tuple([match.end() for match in word.finditer(form)]):
                yield form, ends


class Sources:
    """The texts of a conversation. `before` are those of an earlier round of it, from which what was read is taken."""

    def __init__(self, canisters: Sequence[Canister] = (), before: Sources | None = None) -> None:
        self.canisters = tuple(canisters)
        # Of a chain of rounds only the last that was read is kept.
        self.before: Sources | None = before if before is None or before.is_read else before.before

    @property
    def is_read(self) -> bool:
        return "of_canisters" in self.__dict__

    def continues(self, other: Sources) -> bool:
        """Whether the other is a beginning of this conversation: of the very same canisters."""
        begun = other.canisters
        return len(begun) <= len(self.canisters) and all(map(is_, begun, self.canisters))

    @cached_property
    def texts(self) -> tuple[SourceText, ...]:
        return tuple([text for texts in self.of_canisters for text in texts])

    @cached_property
    def of_canisters(self) -> list[list[SourceText]]:
        """The texts of each canister."""
        before, self.before = self.before, None
        known = before.of_canisters if before is not None and self.continues(before) else []
        names = {each.identifier: each.name for each in self.canisters if isinstance(each, InvocationCanister)}
        return [*known, *[_texts_of(each, names) for each in self.canisters[len(known) :]]]

    def first_with(self, holds: Callable[[SourceText], bool]) -> str:
        """The label of the first text of which that holds; "" if there is none, or if it is the model's own."""
        return next((text.label for text in self.texts if holds(text)), "")


def command_lines(code: str) -> list[str]:
    """The lines of a normal form's code without white space: not the empty ones, and not comments."""
    lines = [_COMMAND.sub("", line.strip()) for line in code.split("\n")]
    return [squeeze(line) for line in lines if line and not line.startswith("#")]


def _code(form: str) -> Iterator[str]:
    """What stands in the fences and code elements of a normal form, and behind prompts. One that is open ends with it."""
    at = 0
    while (opened := _CODE_OPENS.search(form, at)) is not None:
        close = opened[1] or f"</{opened[2]}"
        # A fence that is followed by a language opens another block within this one.
        closed = re.compile(re.escape(close) + (r"(?!\w)" if opened[1] else "")).search(form, opened.end())
        block = form[opened.end() : closed.start() if closed else len(form)]
        yield block if opened[1] else _TAG.sub("", block)
        if closed is None:
            break
        at = closed.end()
    for match in _PROMPT.finditer(form):
        yield match[1]


def _texts_of(canister: Canister, names: Mapping[str, str]) -> list[SourceText]:
    match canister:
        case ResultCanister(invocation_id=identifier, content=content):
            of = f"of {_plain(names[identifier])} " if identifier in names else ""
            return _texts(f"the result {of}({_plain(identifier)})", content)
        case DocumentCanister(content=content, title=title):
            return _texts(f"the document {_plain(title)!r}" if title else "a document", content, title)
        case UserCanister(content=content):
            return _texts("a message of the user", content, is_request=True)
        case AssistantCanister(content=content):
            return _texts("", content)
        case InvocationCanister(name=name, arguments=arguments, raw=raw):
            return [SourceText("", _spell_call(name, arguments, raw))]
        case _:
            return []


def _texts(label: str, content: Iterable[Content], title: str = "", *, is_request: bool = False) -> list[SourceText]:
    """One text of all that was said, and one of each file."""
    parts = [title]
    files: list[SourceText] = []
    for part in content:
        match part:
            case TextualContent(text=text) | RefusalContent(text=text) | ReasoningContent(text=text):
                parts.append(text)
            case FileContent(data=data, name=name) if data:
                named = f"the file {_plain(name)!r}" if name else f"a file in {label}"
                files.append(SourceText(label and named, data.decode("utf-8", "replace")))
            case _:
                pass
    text = "\n".join([each for each in parts if each])
    return [SourceText(label, text, is_request=is_request), *files] if text else files


def _spell_call(name: str, arguments: Mapping[str, object] | None, raw: str) -> str:
    """A call as a text, for what repeats it."""
    written = raw if arguments is None else msgspec.json.encode(arguments).decode()
    return f'{{"name": "{name}", "arguments": {written}}}'


def _plain(name: str) -> str:
    """In one short line, whatever a model or a page made up."""
    return replace_invisible(name[:_MAX_TITLE])
