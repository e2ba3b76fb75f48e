"""What the decoders of all wires share."""

import json

import msgspec
from tests.tables import table

from callboard.core import Usage
from callboard.wires import WIRES, DecodeContext
from callboard.wires.common.reply_stream import MAX_COUNT

HUGE = 10**400
REPLIES = {
    "chat": {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": HUGE}},
    "gemini": {
        "candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": HUGE},
    },
    "messages": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": HUGE},
    },
    "responses": {"object": "response", "status": "completed", "output": [], "usage": {"input_tokens": HUGE}},
}


@table("wire", REPLIES)
def test_a_backend_cannot_count_more_tokens_than_sums_have_room_for(wire):
    context = DecodeContext(identify=lambda index, name: f"call_{index}")
    events = WIRES[wire].decode_response(json.dumps(REPLIES[wire]).encode(), context)
    (usage,) = [each for each in events if isinstance(each, Usage)]
    assert usage.input == MAX_COUNT
    assert msgspec.msgpack.encode(usage)
