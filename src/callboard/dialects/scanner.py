"""Text with calls, reasoning and code in it, and what of it is what.

Owns where a call may stand: anywhere for a marker, at the beginning of a line or in a fence for the forms
that have none, in neither case in code. Knows nothing of how a call goes on behind its marker.
Law: what is said, is said in order; a marker that opens no call is text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from callboard.core import Event, InvocationEnded, InvocationIncomplete, ReasoningPiece, TextPiece
from callboard.dialects.call_frames import open_frame
from callboard.dialects.fence_end import MOST
from callboard.dialects.fences import read_code, read_fence
from callboard.dialects.markers import Kind, Sign
from callboard.dialects.speech import Quoted, Speech, Weighing
from callboard.dialects.text_buffer import Over, Reading, Refused, TooLong

_INDENT = re.compile(rf"[ \t]{{0,{MOST}}}")
_SPAN = re.compile(r"`[^`\n]+`(?=[^`])")
"""A code span of one backtick, whole."""


def read(speech: Speech, *, thinking: bool) -> Reading[None]:
    reader = speech.reader
    try:
        if thinking:
            yield from _think(speech, [each.closes for each in speech.layout.dialect.reasoning])
        if speech.layout.prompted:
            yield from _begin_prompted(speech)
        yield from content(speech)
    except Over:
        reader.at = len(reader.text)
        reader.say()


def _begin_prompted(speech: Speech) -> Reading[None]:
    """Reads what a reply may begin with whose prompt ended with a marker."""
    reader = speech.reader
    reader.begin()
    try:
        yield from reader.blank()
        firsts = speech.layout.prompted_firsts
        begins = not firsts or reader.text[reader.at] in firsts
    except Refused:
        begins = False
    finally:
        reader.decided()
    reader.unread(reader.take())
    if begins:
        yield from open_frame(speech, Sign("", Kind.CALL, speech.layout.prompted))


def content(speech: Speech, *, line: bool = True, weighing: Weighing | None = None) -> Reading[bool]:
    """Reads text, at the beginning of a `line` or not; whether a line begins behind it.

    It ends only where it is read on trial, behind what closes the trial, or where a call is weighed no longer.
    """
    reader = speech.reader
    while weighing is None or not weighing.over:
        if line:
            line = yield from _line(speech)
            continue
        found = speech.layout.starts.search(reader.text, reader.at)
        if found is None:
            yield from speech.idly(speech.layout.starts)
            continue
        reader.at = found.start()
        if found[0] == "\n":
            reader.at += 1
            line = True
            continue
        if found[0] == "`":
            if span := _SPAN.match(reader.text, reader.at):
                reader.at = span.end()
            else:
                yield from read_code(speech, (yield from reader.run("`")))
            continue
        sign = speech.layout.anywhere.find(reader.text, reader.at)
        if sign is False:
            sign = yield from speech.layout.anywhere.at(reader, said=True)
        if sign is None:
            reader.at += 1
            continue
        reader.say()
        if sign.text in speech.trial:
            reader.at += len(sign.text)
            return False
        line = yield from _sign(speech, sign)
    return line


def _sign(speech: Speech, sign: Sign) -> Reading[bool]:
    """Does what the marker says; whether a line begins behind it."""
    reader = speech.reader
    if sign.kind is Kind.CALL:
        return (yield from _weighed(speech, open_frame(speech, sign)))
    reader.at += len(sign.text)
    if sign.decides is not None:
        speech.candidate = sign.decides
        speech.decide()
    if sign.kind is Kind.THINK and not speech.trial:
        speech.release()
        reader.drop()
        yield from _think(speech, [sign.closes])
        return True
    if sign.kind is Kind.CLOSE and sign.text not in speech.expected:
        return False
    speech.expected.discard(sign.text)
    reader.drop()
    if sign.text in speech.layout.drops:
        speech.said.end_line()
    return False


def _weighed(speech: Speech, opening: Reading[bool]) -> Reading[bool]:
    """Reads what may be a call, and what follows as long as that may make it a quotation; as `opening` says.

    Whether it may be one shows when the call is opened. What comes while one is weighed has its fate.
    """
    reader, calls = speech.reader, speech.calls
    count, inner = calls.count, speech.weighing is not None
    before = speech.layout, set(speech.expected)
    speech.fresh = True
    try:
        line = yield from opening
        if calls.count > count:
            speech.said.end_line()
        weighing = speech.weighing
        if weighing is None or inner:
            return line
        if not weighing.place.quoted:
            return (yield from content(speech, line=line, weighing=weighing))
        end = reader.offset
    except Quoted as quoted:
        if inner:
            raise
        end = quoted.end
    except TooLong:
        if inner or speech.weighing is None:
            raise
        end = reader.offset
    except Over:
        if inner or speech.weighing is None:
            raise
        shown = speech.end_of_quotation()
        if shown is None:
            speech.release()
            raise
        end = shown
    _quote(speech, end)
    speech.layout, speech.expected = before
    return False


def _quote(speech: Speech, end: int) -> None:
    """What was weighed is text, up to that offset."""
    reader, weighing = speech.reader, speech.weighing
    if weighing is None:
        raise AssertionError
    speech.calls.forget(weighing.count, reader.out)
    reader.out, speech.certain = speech.certain or [], None
    speech.weigh_no_longer(speech.surroundings)
    speech.forget()
    reader.speak = TextPiece
    recorded = reader.recorded()
    begin = reader.offset - len(recorded)
    reader.unread(recorded[end - begin :])
    quotation = recorded[: end - begin]
    reader.out.append(TextPiece(quotation, offsets=(begin, end)))
    speech.surroundings.feed(quotation)
    speech.surroundings.quoted = speech.surroundings.quoted or not weighing.place.alone


def _line(speech: Speech) -> Reading[bool]:
    """Reads what only the beginning of a line may hold; whether another line begins behind it."""
    reader = speech.reader
    if not (yield from _may_begin_line(speech)):
        return False
    at = _INDENT.match(reader.text, reader.at).end()  # type: ignore[union-attr]  # it matches nothing, too
    char = reader.text[at]
    reader.say()
    reader.at = at
    if char in "`~":
        return (yield from _weighed(speech, read_fence(speech, char)))
    sign = yield from speech.layout.line.at(reader)
    if sign is None or sign.kind is not Kind.CALL:
        return False
    return (yield from _weighed(speech, open_frame(speech, sign)))


def _may_begin_line(speech: Speech) -> Reading[bool]:
    """Whether the line's first character is one that means something there. Nothing is read."""
    reader = speech.reader
    while True:
        indent = _INDENT.match(reader.text, reader.at)
        at = reader.at if indent is None else indent.end()
        if at < len(reader.text):
            return reader.text[at] in speech.layout.line_firsts
        reader.say()
        yield


def _think(speech: Speech, closes: Sequence[str]) -> Reading[None]:
    """Reads reasoning, to one of its closing markers or to a call that ends it."""
    reader = speech.reader
    reader.speak = ReasoningPiece
    speech.said.begin()
    line, over = True, False
    while not over:
        if line:
            line = False
            if (yield from _may_begin_line(speech)):
                over = yield from _try(speech, _line(speech), closes)
            continue
        found = speech.layout.thinking_starts.search(reader.text, reader.at)
        if found is None:
            yield from speech.idly(speech.layout.thinking_starts)
            continue
        reader.at = found.start()
        if found[0] == "\n":
            reader.at += 1
            line = True
            continue
        sign = yield from speech.layout.thinking.at(reader, said=True)
        if sign is None or (sign.kind is Kind.UNTHINK and sign.text not in closes):
            reader.at += 1
            continue
        reader.say()
        if sign.kind is not Kind.CALL:
            reader.at += len(sign.text)
            reader.drop()
            if sign.decides is not None:
                speech.candidate = sign.decides
                speech.decide()
            over = True
        else:
            over = yield from _try(speech, open_frame(speech, sign), closes)
    reader.speak = TextPiece
    speech.said.begin()
    yield from reader.blank()
    reader.drop()


def _try(speech: Speech, opening: Reading[bool], closes: Sequence[str]) -> Reading[bool]:
    """Reads what may be a call, in reasoning that may have no end: whether the reasoning is over.

    It is one if the reasoning is not closed behind it; as long as that is open, all of it is held.
    """
    reader, calls = speech.reader, speech.calls
    reader.say()
    speech.fresh = True
    before = speech.layout, set(speech.expected), calls.count
    speech.certain, reader.out = reader.out, []
    speech.trial, speech.tried = closes, calls.count
    reader.speak = TextPiece
    reader.record()
    reader.hears = None
    over = False
    try:
        yield from opening
        if calls.count > before[2]:
            yield from content(speech)
    except (Refused, TooLong):
        pass
    except Over:
        over = True
    recorded = reader.recorded()
    closer, end = _last(recorded, closes)
    events, reader.out = reader.out, speech.certain
    speech.certain, speech.trial = None, ()
    if over and _is_call(speech, events, closed=bool(closer)):
        reader.out += events
        raise Over
    calls.forget(before[2], events)
    speech.layout, speech.expected = before[:2]
    speech.forget()
    begin = reader.offset - len(recorded)
    reader.hears = speech.surroundings.feed
    speech.surroundings.feed(recorded[:end])
    if end:
        reader.out.append(ReasoningPiece(recorded[:end], offsets=(begin, begin + end)))
    if closer:
        reader.unread(recorded[end + len(closer) :])
        return True
    reader.speak = ReasoningPiece
    if over:
        raise Over
    return False


def _is_call(speech: Speech, events: list[Event], *, closed: bool) -> bool:
    """Whether what was read to the text's end, in reasoning that is open, is a call.

    Where the text was cut, the reasoning may have gone on: a whole call was then a thought.
    """
    kinds = {type(event) for event in events}
    if InvocationEnded in kinds:
        return speech.why == "stop"
    return InvocationIncomplete in kinds and not closed


def _last(text: str, closes: Sequence[str]) -> tuple[str, int]:
    """The marker that stands last in the text, and where; "" and the text's end if there is none."""
    found = max(((text.rfind(each), each) for each in closes), default=(-1, ""))
    return (found[1], found[0]) if found[0] >= 0 else ("", len(text))
