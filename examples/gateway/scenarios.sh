#!/usr/bin/env bash
# What a client may ask of a gateway, one request each: says for each whether the answer is what was to be.
#
#     callboard serve --local qwen2.5-coder-1.5b
#     examples/gateway/scenarios.sh [URL] [MODEL]
set -uo pipefail
url=${1:-http://127.0.0.1:8282/v1}
model=${2:-qwen2.5-coder-1.5b}
failed=0

flat='{"type": "function", "name": "add", "description": "Add two numbers.", "parameters": {"type": "object",
  "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}'
nested='{"type": "function", "function": {"name": "add", "description": "Add two numbers.", "parameters":
  {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}}'

check() { # name, what the answer has to hold (an extended regular expression), path, body
  local answer
  answer=$(curl --silent --max-time 300 "$url/$3" -H 'content-type: application/json' -d "$4")
  if grep -qE "$2" <<<"$answer"; then
    echo "ok      $1"
  else
    echo "FAILED  $1: ${answer:0:300}"
    failed=1
  fi
}
ask() { # name, expected, the body's other members
  check "$1" "$2" responses "{\"model\": \"$model\", \"input\": \"What is 2 + 3? Use the tool.\", $3}"
}

ask 'a tool in the flat shape' '"type":"function_call"' "\"tools\": [$flat]"
ask "a tool in seed 002's nested shape" '"type":"function_call"' "\"tools\": [$nested]"
ask 'tool_choice none' '"type":"message"' "\"tools\": [$flat], \"tool_choice\": \"none\""
ask 'tool_choice required' '"type":"function_call"' "\"tools\": [$flat], \"tool_choice\": \"required\""
ask 'one tool by its name' '"name":"add"' "\"tools\": [$flat], \"tool_choice\": {\"type\": \"function\", \"name\": \"add\"}"
ask 'one call at a time' '"type":"function_call"' "\"tools\": [$flat], \"parallel_tool_calls\": false"
ask 'a stream' 'event: response.completed' "\"tools\": [$flat], \"stream\": true"
ask 'no background replies' 'background_not_supported' '"background": true'
ask 'a response that is not there' 'previous_response_not_found' '"previous_response_id": "resp_0"'
check 'no model' model_required responses '{"input": "Hi"}'
check 'no JSON' invalid_json responses '{'
check 'Chat Completions' '"tool_calls"' chat/completions \
  "{\"model\": \"$model\", \"messages\": [{\"role\": \"user\", \"content\": \"What is 2 + 3? Use the tool.\"}], \"tools\": [$nested]}"
check 'Messages' '"type":"tool_use"' messages \
  "{\"model\": \"$model\", \"max_tokens\": 200, \"messages\": [{\"role\": \"user\", \"content\": \"What is 2 + 3? Use the tool.\"}],
    \"tools\": [{\"name\": \"add\", \"input_schema\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"number\"}, \"b\": {\"type\": \"number\"}}}}]}"
exit $failed
