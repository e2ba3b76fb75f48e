"""A streamed tool call through the gateway, event by event, with nothing but Python.

callboard serve --local qwen2.5-coder-1.5b
python examples/gateway/stream.py [URL] [MODEL]
"""

import json
import sys
from urllib.request import Request, urlopen

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
        "required": ["city"],
    },
}


def events(url, body):
    """The events of a streamed response, decoded."""
    data = json.dumps({**body, "stream": True}).encode()
    asked = Request(f"{url}/responses", data, {"content-type": "application/json", "authorization": "Bearer none"})
    with urlopen(asked) as answer:
        for line in answer:
            if line.startswith(b"data: {"):
                yield json.loads(line[6:])


def main(url="http://127.0.0.1:8282/v1", model="qwen2.5-coder-1.5b"):
    body = {"model": model, "input": "How is the weather in Oslo?", "tools": [TOOL]}
    calls = 0
    for event in events(url, body):
        match event["type"]:
            case "response.output_text.delta":
                print(event["delta"], end="", flush=True)
            case "response.output_item.added" if event["item"]["type"] == "function_call":
                print(f"call {event['output_index']}: {event['item']['name']} ", end="")
            case "response.function_call_arguments.delta":
                print(event["delta"], end="", flush=True)
            case "response.function_call_arguments.done":
                calls += 1
                print()
            case "response.completed":
                usage = event["response"]["usage"]
                print(f"done: {calls} calls, {usage['input_tokens']} tokens in, {usage['output_tokens']} out")
            case "response.incomplete" | "response.failed":
                sys.exit(f"{event['type']}: {event['response']['error'] or event['response']['incomplete_details']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
