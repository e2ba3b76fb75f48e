#!/usr/bin/env bash
# A conversation of two turns through the gateway: the model calls, we send the result, it answers.
#
#     callboard serve --local qwen2.5-coder-1.5b
#     examples/gateway/turns.sh [URL] [MODEL]
set -euo pipefail
url=${1:-http://127.0.0.1:8282/v1}
model=${2:-qwen2.5-coder-1.5b}

tools='[{"type": "function", "name": "get_weather", "description": "Get the current weather of a city.",
  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]'
question='{"type": "message", "role": "user", "content": "How is the weather in Oslo?"}'

ask() { # the input items
  curl --silent --show-error --fail-with-body "$url/responses" -H 'content-type: application/json' \
    -d "{\"model\": \"$model\", \"input\": [$1], \"tools\": $tools}"
}
item() { # of the response on standard input, the first of a type
  python3 -c 'import json, sys
for item in json.load(sys.stdin)["output"]:
    if item["type"] == sys.argv[1]:
        print(json.dumps(item))
        break
else:
    sys.exit("the model gave no " + sys.argv[1])' "$1"
}

call=$(ask "$question" | item function_call)
echo "the model calls: $call"

id=$(python3 -c 'import json, sys; print(json.loads(sys.argv[1])["call_id"])' "$call")
result="{\"type\": \"function_call_output\", \"call_id\": \"$id\", \"output\": \"{\\\"temp\\\": 4, \\\"sky\\\": \\\"clear\\\"}\"}"

answer=$(ask "$question, $call, $result" | item message)
echo "and answers: $answer"
