from tests.tables import table

from callboard.core import ReasoningPiece, ReplyEnded, TextPiece
from callboard.providers.control_tokens import EventUnescaper
from callboard.text.control_tokens import ControlTokens

TOKENS = ControlTokens(["<|im_end|>"])


@table("size", [1, 7, 100])
def test_the_end_of_reasoning_keeps_its_origin(size):
    stage, written = EventUnescaper(TOKENS), f"I say {TOKENS.escape('<|im_end|>')[:-3]}"
    pieces = [ReasoningPiece(written[at : at + size], origin="deepseek-r1") for at in range(0, len(written), size)]
    events = [out for piece in [*pieces, TextPiece("Yes."), ReplyEnded("stop")] for out in stage.feed(piece)]
    thoughts = [event for event in events if isinstance(event, ReasoningPiece)]
    assert "".join([event.text for event in thoughts]) == written
    assert {event.origin for event in thoughts} == {"deepseek-r1"}
