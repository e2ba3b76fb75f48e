"""The names of OpenTelemetry's conventions for generative AI and MCP, and our own names.

They come from https://github.com/open-telemetry/semantic-conventions-genai (Apache-2.0). They are all "in development",
so a later commit may rename them. `COMMITS` has the commit of each file.

Law: no other module writes the name of an attribute or a metric.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

COMMITS: Final[Mapping[str, str]] = {
    "model/gen-ai/spans.yaml": "7e7e4e763354b505b8e1f76512f17a1977b00f70",
    "model/gen-ai/metrics.yaml": "004902b8cb70aa5ae6ca4ae07132b7daabcd3e10",
    "model/mcp/common.yaml": "0e5e6a8d59d38c9c19556a5164a83cc11a7d53ff",
    "model/mcp/spans.yaml": "9cebdaa9e67c4b34ae9683105494974539eb10d5",
}
"""Commits of the conventions' repository, by file."""

SCOPE: Final = "callboard"
"""Instrumentation scope of our spans and metrics."""

# Operations. The name of a span starts with its operation.
CHAT: Final = "chat"
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_WORKFLOW: Final = "invoke_workflow"
PLAN: Final = "plan"

# Attributes of every operation.
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

# Inference.
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_SEED: Final = "gen_ai.request.seed"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105  # not a secret

# Content, only if it is captured.
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

# Tools, agents, workflows.
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"

# MCP. The SDK makes the spans of requests that we send.
MCP_METHOD: Final = "mcp.method.name"
MCP_PROTOCOL: Final = "mcp.protocol.version"
RPC_STATUS: Final = "rpc.response.status_code"
NETWORK_TRANSPORT: Final = "network.transport"

# HTTP, processes and exceptions, from OpenTelemetry's other conventions.
EXCEPTION_TYPE: Final = "exception.type"
HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"
PROCESS_NAME: Final = "process.executable.name"
PROCESS_EXIT_CODE: Final = "process.exit.code"
PROCESS_ARGUMENTS: Final = "process.command_args"

# Ours.
JOB_ID: Final = "callboard.job.id"
JOB_SEGMENT: Final = "callboard.job.segment"
JOB_STATE: Final = "callboard.job.state"
PHASE: Final = "callboard.phase"
RUN_STATE: Final = "callboard.run.state"
RUN_ROUNDS: Final = "callboard.run.rounds"
SANDBOX: Final = "callboard.sandbox.name"
STOP_REASON: Final = "callboard.command.stop_reason"
BACKEND: Final = "callboard.gateway.backend"
FRONT: Final = "callboard.gateway.front"
REQUEST_ID: Final = "callboard.gateway.request_id"

_SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_LONG_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
_MCP_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_TOKENS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)


_WORD: Final = re.compile(r"[\w.:-]{1,64}", re.ASCII)


def error_word(code: str) -> str:
    """Return a code as an `error.type`. It is a label of metrics, but an endpoint may send any text as its code."""
    return code if _WORD.fullmatch(code) else "_OTHER"


class Metric(NamedTuple):
    """A histogram: its name, unit, meaning, and the upper bounds of its buckets."""

    name: str
    unit: str
    meaning: str
    bounds: tuple[float, ...]


OPERATION_DURATION: Final = Metric("gen_ai.client.operation.duration", "s", "GenAI operation duration.", _SECONDS)
TOKEN_USAGE: Final = Metric("gen_ai.client.token.usage", "{token}", "Number of input and output tokens used.", _TOKENS)
FIRST_CHUNK: Final = Metric(
    "gen_ai.client.operation.time_to_first_chunk", "s", "Time to receive the first chunk.", _SECONDS
)
TOOL_DURATION: Final = Metric("gen_ai.execute_tool.duration", "s", "The duration of a single tool execution.", _SECONDS)
AGENT_DURATION: Final = Metric(
    "gen_ai.invoke_agent.duration", "s", "The duration of a single agent invocation.", _LONG_SECONDS
)
MCP_CLIENT_DURATION: Final = Metric(
    "mcp.client.operation.duration", "s", "The duration of an MCP request as observed on the sender.", _MCP_SECONDS
)
MCP_SERVER_DURATION: Final = Metric(
    "mcp.server.operation.duration", "s", "The duration of an MCP request as observed on the receiver.", _MCP_SECONDS
)

PROVIDERS: Final[Mapping[str, str]] = {
    "responses": "openai",
    "chat": "openai",
    "messages": "anthropic",
    "gemini": "gcp.gemini",
}
"""Names of providers by wire, for requests whose provider is not known."""
