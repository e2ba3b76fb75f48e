"""Calls in their frames.

Owns what opens and closes a frame, and what becomes of what stands in one and is no call. Knows nothing of
how a call is spelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import itemgetter

from callboard.dialects.grammars.json_objects import Objects
from callboard.dialects.markers import Framed, Kind, Sign, following, openers
from callboard.dialects.parse_state import Body
from callboard.dialects.speech import Speech
from callboard.dialects.text_buffer import Over, Reading, Refused
from callboard.text.marker import marker

_BLANK = " \t\r\n"
_FENCES = (marker("```json"), marker("```"))
_FENCE = 3
SEPARATORS = f"{_BLANK},;"


def open_frame(speech: Speech, sign: Sign) -> Reading[bool]:
    """A call may begin here. Whether a line begins behind what is read."""
    reader = speech.reader
    begin = reader.offset
    speech.goes_on = False
    reader.begin()
    if sign.read:
        reader.at += len(sign.text)
    try:
        framed = yield from read_body(speech, sign.frames)
    except Refused:
        if reader.offset == begin and sign.text:
            if token := speech.layout.drops.get(sign.text):
                _drop(speech, token)
                return False
            reader.at += 1
        reader.say()
        return False
    except Over:
        if sign.read and reader.begun and (sign.control or speech.why != "stop"):
            _cut(speech)
        raise
    finally:
        reader.decided()
    yield from _behind(speech, framed)
    return not speech.goes_on


def _drop(speech: Speech, token: Sign) -> None:
    """Passes over a token that began nothing."""
    speech.reader.at += len(token.text)
    speech.reader.drop()
    if token.decides is not None:
        speech.candidate = token.decides
        speech.decide()


def _cut(speech: Speech) -> None:
    """The text ended where a call begins: what there is of it is no text."""
    reader = speech.reader
    begin = reader.pending
    reader.at = len(reader.text)
    cut = reader.take()
    reader.note("dropped", f"the text ends where a call begins: {cut.strip()}", begin)


def read_body(speech: Speech, frames: Sequence[Framed]) -> Reading[Framed]:
    """Reads a call and what of its frame stands before it. Raises Refused if none is there."""
    reader = speech.reader
    while True:
        yield from reader.blank()
        opener = yield from openers(tuple(frames)).at(reader)
        if opener is None:
            break
        reader.at += len(opener.text)
        frames = opener.frames
    speech.fenced = fenced = yield from _pass_fence(speech, frames)
    bodies = [(framed, body, head) for framed, body in _bodies(tuple(frames)) for head in body.heads]
    found = yield from reader.first([head for _, _, head in bodies])
    if found is None or (fenced and not isinstance(bodies[found[0]][1], Objects)):
        raise Refused
    framed, body, _ = bodies[found[0]]
    speech.candidate, frame = speech.framed = framed
    count = speech.calls.count
    try:
        yield from body.read(speech, found[1], declared=frame.declared)
    except Refused:
        if speech.calls.count == count:
            raise
        speech.broken = True
    else:
        speech.broken = False
    speech.expected.update(frame.closers)
    return framed


@lru_cache(maxsize=1024)
def _bodies(frames: tuple[Framed, ...]) -> list[tuple[Framed, Body]]:
    """What may stand in these frames, what each is for before what each also reads."""
    ranked = [(rank, framed, body) for framed in frames for rank, body in enumerate(framed[1].bodies)]
    return [(framed, body) for _, framed, body in sorted(ranked, key=itemgetter(0))]


def _pass_fence(speech: Speech, frames: Sequence[Framed]) -> Reading[bool]:
    """Passes over a fence that some models put around the JSON inside their markers."""
    reader = speech.reader
    if speech.fence or reader.text[reader.at] != "`" or not any(frame.openers for _, frame in frames):
        return False
    found = yield from reader.first(_FENCES)
    if found is None:
        return False
    reader.at = found[1].end
    yield from reader.blank()
    return True


def _behind(speech: Speech, framed: Framed) -> Reading[None]:
    """Reads what frames a call behind it, and the calls that follow in the same frame."""
    reader = speech.reader
    signs = following(framed)
    inside, opened = True, False
    try:
        while not speech.broken:
            reader.begin()
            opened = False
            yield from reader.run(SEPARATORS if inside else _BLANK)
            sign = yield from signs.at(reader)
            if sign is not None and sign.kind is not Kind.CALL:
                speech.expected.discard(sign.text)
                inside = inside and sign.kind is Kind.DROP
                reader.at += len(sign.text)
                reader.drop()
            elif sign is None and inside and speech.fenced and (yield from reader.run("`", _FENCE)) == _FENCE:
                speech.fenced = False
                reader.drop()
            elif sign is not None or inside:
                opened = sign is not None
                yield from read_body(speech, [framed])
                inside = True
            else:
                break
    except Refused:
        pass
    except Over:
        begun = reader.begun
        if not begun or signs.begun(begun):
            reader.at = len(reader.text)
            reader.drop()
        elif speech.why != "stop" and (opened or framed[1].closers):
            _cut(speech)
        raise
    finally:
        reader.decided()
    if inside and framed[1].noted:
        yield from _noted(speech, framed)
    else:
        reader.say()


def _noted(speech: Speech, framed: Framed) -> Reading[None]:
    """Reads on to what closes the frame."""
    reader = speech.reader
    begin = reader.pending
    closers = following(framed)
    rest: list[str] = []
    try:
        while True:
            found = closers.starts.search(reader.text, reader.at)
            reader.at = len(reader.text) if found is None else found.start()
            rest.append(reader.take())
            if found is None:
                yield
                continue
            sign = yield from closers.at(reader)
            if sign is not None and sign.kind is Kind.CLOSE:
                break
            reader.at += 1
    except Over:
        reader.at = len(reader.text)
        rest.append(reader.take())
        _tell(speech, rest, begin)
        raise
    _tell(speech, rest, begin)
    reader.at += len(sign.text)
    speech.expected.discard(sign.text)
    reader.drop()


def _tell(speech: Speech, rest: list[str], begin: int) -> None:
    if said := "".join(rest).strip():
        speech.reader.note("dropped", f"after the call in its block: {said}", begin)
