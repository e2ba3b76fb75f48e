"""The doctor's requests through the gateway, their budget, and their replies: the first two requests of each client.

Source of the requests' forms: Codex 0.169, Claude Code 2.1, Gemini CLI 0.61 and Qwen Code 0.15 (tests/vectors/clients),
with our own texts.
Law: no request begins after the seconds or requests are used up, and none may take longer than the remaining time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final, Literal, TypeAlias

import msgspec

from callboard.core import Event, InvocationEnded, InvocationStarted, ReplyFailed
from callboard.servers.gateway.frontends import ALT, SSE
from callboard.text.display import collapse

SECONDS: Final = 110.0
"""Default seconds for the requests, so that the whole command takes less than two minutes."""
REQUESTS: Final = 150
_SHARE: Final = 3
"""One request may take at most this fraction of all seconds, so that a slow one does not block the others."""


class BudgetSpent(Exception):  # not an error: remaining checks are skipped
    """No time or no request is left."""


class DoctorBudget:
    """A budget of seconds and requests. `clock` returns seconds."""

    def __init__(
        self, seconds: float = SECONDS, requests: int = REQUESTS, clock: Callable[[], float] = monotonic
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end = clock() + seconds
        self._requests = self._requests_left = requests

    @property
    def is_spent(self) -> bool:
        return self._requests_left <= 0 or self._clock() >= self._end

    @property
    def reason(self) -> str:
        return (
            f"{self._requests} request{'s' * (self._requests != 1)} sent"
            if self._requests_left <= 0
            else f"{self._seconds:g} s passed"
        )

    def take(self) -> float:
        """Count one request, and return the seconds that it may take. Raises BudgetSpent."""
        if self.is_spent:
            raise BudgetSpent
        self._requests_left -= 1
        return min(self._end - self._clock(), self._seconds / _SHARE)


State: TypeAlias = Literal["no", "partly", "yes", "not asked"]
_MAX_FAILURE = 200
"""Maximum characters of a failure in the report."""


class ProbeReply(msgspec.Struct, frozen=True):
    """A reply. `mode` is how tools were declared; `learned` are the facts that refusals taught the gateway."""

    events: list[Event]
    status: int = 0
    dropped: tuple[str, ...] = ()
    mode: str = ""
    learned: Mapping[str, Any] = {}

    @property
    def failed(self) -> ReplyFailed | None:
        last = self.events[-1] if self.events else ReplyFailed("provider", "cut", "the backend sent no reply")
        return last if isinstance(last, ReplyFailed) else None

    @property
    def calls(self) -> bool:
        return any(isinstance(event, InvocationEnded) for event in self.events)

    @property
    def call_form(self) -> str:
        if self.mode != "native":
            return f"the tools are in the prompt (mode {self.mode})"
        started = next(event for event in self.events if isinstance(event, InvocationStarted))
        return "native" if started.found_in == "wire" else "written into the text"

    @property
    def fault(self) -> str:
        """The failure on one line. "" if there is none."""
        if self.failed is None:
            return ""
        text = collapse(self.failed.message, _MAX_FAILURE)
        status = f"{self.status}: " if self.status >= 400 and str(self.status) not in text else ""
        return f"{status}{text}"


Body: TypeAlias = dict[str, Any]

MOST_TOKENS = 512
"""Maximum tokens of a reply that should contain a call, with room for some reasoning before it."""
FEW_TOKENS = 48
"""Maximum tokens of a reply whose beginning is enough."""
COMMAND = "ls"
OUTPUT = "README.md\nmain.py\n"
SYSTEM = "You are a coding agent. You act with the tools that you have."
TASK = "Which files are in this directory? Run the command ls to find out."
_ENVIRONMENT = "The working directory is /project. The shell is bash."


def _schema(**properties: Any) -> Body:
    return {
        "type": "object",
        "properties": properties,
        "required": [next(iter(properties))],
        "additionalProperties": False,
    }


_READ = _schema(path={"type": "string", "description": "The file's path."})
_SHELL = _schema(cmd={"type": "string", "description": "The command."}, workdir={"type": "string"})


def user(content: Any) -> Body:
    return {"role": "user", "content": content}


_FUNCTION: Body = {"name": "read_file", "description": "Read a file.", "parameters": _READ}
TOOL: Body = {"type": "function", "function": _FUNCTION}
NAMED = {"type": "function", "function": {"name": "read_file"}}

ANSWER: Body = {"messages": [user("Say: ready")], "max_tokens": FEW_TOKENS}


# The first request of each client, and the request after a call of its shell.


def codex() -> tuple[Body, Body]:
    """Return Codex's requests with tools in the field for tools."""
    tools: list[Body] = [
        {"type": "function", "name": "exec_command", "description": "Run a command.", "strict": False,
         "parameters": _SHELL},
        _PATCH,
        {"type": "namespace", "name": "multi_agent_v1", "description": "Other agents.", "tools": [
            {"type": "function", "name": "close_agent", "description": "Close an agent.", "strict": False,
             "parameters": _schema(target={"type": "string"})},
        ]},
    ]  # fmt: skip
    call = {"type": "function_call", "call_id": "call_1", "name": "exec_command", "arguments": '{"cmd":"ls"}'}
    output = {"type": "function_call_output", "call_id": "call_1", "output": OUTPUT}
    body = {"tools": tools, "reasoning": {"summary": "auto"}, "parallel_tool_calls": True}
    return _responses(body, []), _responses(body, [call, output])


def codex_lite() -> tuple[Body, Body]:
    """Return Codex's requests with tools among the input items, as for its newest models."""
    tools = [
        {"type": "namespace", "name": "functions", "description": "What you can do.", "tools": [
            {"type": "custom", "name": "exec", "description": "Run JavaScript; await tools.exec_command({cmd: 'ls'}) "
             "runs a command, text(value) shows a value.", "format": _GRAMMAR},
            {"type": "function", "name": "wait", "description": "Wait for a cell.", "strict": False,
             "parameters": _schema(cell_id={"type": "string"})},
        ]},
    ]  # fmt: skip
    declared = {"type": "additional_tools", "role": "developer", "tools": tools}
    code = "text(await tools.exec_command({cmd: 'ls'}))"
    call = {"type": "custom_tool_call", "call_id": "call_1", "name": "exec", "namespace": "functions", "input": code}
    output = {"type": "custom_tool_call_output", "call_id": "call_1", "output": [
        {"type": "input_text", "text": OUTPUT},
    ]}  # fmt: skip
    body = {"reasoning": {"effort": "low", "context": "all_turns"}, "text": {"verbosity": "low"},
            "parallel_tool_calls": False}  # fmt: skip
    return _responses(body, [], declared), _responses(body, [call, output], declared)


_GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /(.|\\n)+/"}
_PATCH = {"type": "custom", "name": "apply_patch", "description": "Change files by a patch.", "format": _GRAMMAR}


def _responses(body: Body, items: list[Body], *first: Body) -> Body:
    def message(role: str, text: str) -> Body:
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}

    thoughts = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "I look."}], "content": None,
                "encrypted_content": None}  # fmt: skip
    return {
        "input": [
            *first,
            message("developer", SYSTEM),
            message("developer", "Do not commit."),
            message("user", _ENVIRONMENT),
            message("user", TASK),
            *([thoughts] if items else []),
            *items,
        ],
        "tool_choice": "auto",
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "doctor",
        "client_metadata": {"thread_id": "doctor"},
        "max_output_tokens": FEW_TOKENS if items else MOST_TOKENS,
        **body,
    }


def claude() -> tuple[Body, Body]:
    cached = {"cache_control": {"type": "ephemeral"}}
    shell = _schema(command={"type": "string"}, description={"type": "string"})
    body = {
        "system": [{"type": "text", "text": SYSTEM}, {"type": "text", "text": "Do not commit.", **cached}],
        "tools": [
            {"name": "Bash", "description": "Run a command.", "input_schema": shell},
            {"name": "Read", "description": "Read a file.", "input_schema": _READ},
        ],
        "metadata": {"user_id": "doctor"},
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
    }
    messages: list[Body] = [
        {"role": "user", "content": [{"type": "text", "text": _ENVIRONMENT}, {"type": "text", "text": TASK}]},
        {"role": "system", "content": "Tools can be called at once."},
    ]
    call = {"type": "tool_use", "id": "call_1", "name": "Bash", "input": {"command": COMMAND}}
    output = {"type": "tool_result", "tool_use_id": "call_1", "content": OUTPUT, "is_error": False, **cached}
    after_call: list[Body] = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [output]}]
    return _two_bodies(body, messages, after_call)


def _two_bodies(body: Body, messages: list[Body], after_call: list[Body]) -> tuple[Body, Body]:
    first = {**body, "messages": messages, "max_tokens": MOST_TOKENS}
    return first, {**body, "messages": [*messages, *after_call], "max_tokens": FEW_TOKENS}


def gemini() -> tuple[Body, Body]:
    shell = _schema(command={"type": "string"}, is_background={"type": "boolean"})
    messages: list[Body] = [{"role": "user", "parts": [{"text": _ENVIRONMENT}, {"text": TASK}]}]
    call = {"id": "call_1", "name": "run_shell_command", "args": {"command": COMMAND}}
    output = {"id": "call_1", "name": "run_shell_command", "response": {"output": OUTPUT}}
    after_call: list[Body] = [
        # The client writes this if a call came without a signature.
        {"role": "model", "parts": [{"functionCall": call, "thoughtSignature": "skip_thought_signature_validator"}]},
        {"role": "user", "parts": [{"functionResponse": output}]},
    ]
    body = {
        "systemInstruction": {"role": "user", "parts": [{"text": SYSTEM}]},
        "tools": [{"functionDeclarations": [
            {"name": "run_shell_command", "description": "Run a command.", "parametersJsonSchema": shell},
            {"name": "read_file", "description": "Read a file.", "parametersJsonSchema": _READ},
        ]}],
        "stream": True,
        ALT: SSE,
    }  # fmt: skip
    sampling = {"temperature": 1, "topP": 0.95, "topK": 64}
    thinking = {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": 8192}}

    def ask(contents: list[Body], most: int) -> Body:
        return {**body, "contents": contents, "generationConfig": {**sampling, **thinking, "maxOutputTokens": most}}

    return ask(messages, MOST_TOKENS), ask([*messages, *after_call], FEW_TOKENS)


def qwen() -> tuple[Body, Body]:
    shell = _schema(command={"type": "string"}, is_background={"type": "boolean"})
    parts = [{"type": "text", "text": _ENVIRONMENT}, {"type": "text", "text": TASK}]
    messages: list[Body] = [{"role": "system", "content": SYSTEM}, user(parts)]
    call = {"id": "call_1", "type": "function", "function": {
        "name": "run_shell_command", "arguments": '{"command":"ls","is_background":false}',
    }}  # fmt: skip
    after_call: list[Body] = [
        {"role": "assistant", "content": "I look.", "tool_calls": [call], "reasoning_content": "I look."},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": OUTPUT}]},
    ]
    body = {
        "tools": [
            {"type": "function", "function": {"name": "run_shell_command", "description": "Run a command.",
                                              "parameters": shell}},
            TOOL,
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    return _two_bodies(body, messages, after_call)


CLIENTS: Mapping[str, tuple[str, tuple[Body, Body]]] = {
    "Codex": ("responses", codex()),
    "Codex, newest models": ("responses", codex_lite()),
    "Claude Code": ("messages", claude()),
    "Gemini CLI": ("gemini", gemini()),
    "Qwen Code": ("chat", qwen()),
}
"""Front and the two requests of each client, by the client's name."""
