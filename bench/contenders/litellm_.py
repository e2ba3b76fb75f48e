"""litellm's transformations from Chat to Anthropic's wire and back, without network.

Read on its input, as JSON, are `body`, a chat request, and `frames`, the data of Anthropic's frames of a text;
printed are CPU milliseconds of the request, from JSON to JSON, microseconds of a frame, and what came of them.
"""

import json
import sys
from typing import Any


def offline(event: str, _: tuple[Any, ...]) -> None:
    if event in {"socket.connect", "socket.getaddrinfo", "socket.sendto"}:
        raise PermissionError(event)


sys.addaudithook(offline)  # before litellm is imported, for it may ask for its table of prices then

from bench.dialects import timed  # noqa: E402 - see above
from litellm.llms.anthropic.chat.handler import ModelResponseIterator  # noqa: E402 - see above
from litellm.llms.anthropic.chat.transformation import AnthropicConfig  # noqa: E402 - see above

_CONFIG = AnthropicConfig()


def request(body: str) -> str:
    """As its completion does: the parameters first, then the messages."""
    asked: dict[str, Any] = json.loads(body)
    model, messages = asked.pop("model"), asked.pop("messages")
    stream = asked.pop("stream", False)
    asked.pop("stream_options", None)
    parameters = _CONFIG.map_openai_params(asked, {"stream": stream}, model, drop_params=False)
    transformed = _CONFIG.transform_request(model, messages, parameters, litellm_params={}, headers={})
    return json.dumps(transformed)


def text(frames: list[str]) -> str:
    parser = ModelResponseIterator(iter(()), sync_stream=True)
    return "".join([parser.chunk_parser(json.loads(data)).choices[0].delta.content or "" for data in frames])


if __name__ == "__main__":
    given = json.load(sys.stdin)
    asked, read = timed(lambda: request(given["body"]), lambda: text(given["frames"]))
    found = {"ms": min(asked.seconds) * 1e3, "µs": min(read.seconds) / len(given["frames"]) * 1e6}
    print(json.dumps({**found, "body": asked.given, "text": read.given}))
