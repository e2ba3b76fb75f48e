"""What the parsers of vLLM and SGLang import besides themselves, so that they run without a server and its torch.

A module that is not there is one whose names are classes that do nothing, but for those of VALUES.
"""

import logging
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field

_PEERS = {"sglang", "vllm"}
_THEIRS = {"mistral_common", "openai", "openai_harmony", "prometheus_client", "transformers", "xgrammar"}


class _Class(type):
    """What annotations do with a class."""

    def __getattr__(cls, name: str) -> Any:
        return _named(name)

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __or__(cls, _: Any) -> Any:
        return cls

    __ror__ = __or__


class _Nothing(metaclass=_Class):
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        return _named(name)()

    def __bool__(self) -> bool:
        return False


def _named(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Class(name, (_Nothing,), {})


class _Module(ModuleType):
    def __getattr__(self, name: str) -> Any:
        value = VALUES[name] if name in VALUES else _named(name)
        setattr(self, name, value)
        return value


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        root, _, inner = name.partition(".")
        missing = root in _THEIRS or (root in _PEERS and inner)
        return ModuleSpec(name, self, is_package=True) if missing else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, _: ModuleType) -> None:
        pass


class _Value(BaseModel):
    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)


class Function(_Value):
    name: str
    parameters: dict[str, Any] | None = None
    strict: bool = False


class Tool(_Value):
    type: str = "function"
    function: Function


class Request(_Value):
    tools: list[Tool]
    tool_choice: str = "auto"
    skip_special_tokens: bool = True
    include_reasoning: bool = True


def _identifier(*_: Any, **__: Any) -> str:
    return f"chatcmpl-tool-{uuid4().hex}"


class FunctionCall(_Value):
    name: str
    arguments: str


class ToolCall(_Value):
    id: str = Field(default_factory=_identifier)
    type: str = "function"
    function: FunctionCall


class DeltaFunctionCall(BaseModel):
    name: str | None = None
    arguments: str | None = None


class DeltaToolCall(_Value):
    id: str | None = None
    type: str | None = None
    index: int = 0
    function: DeltaFunctionCall | None = None


class DeltaMessage(_Value):
    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[DeltaToolCall] = Field(default_factory=list)


VALUES = {
    "Function": Function,
    "Tool": Tool,
    "FunctionDefinition": Function,
    "ChatCompletionToolsParam": Tool,
    "ChatCompletionRequest": Request,
    "FunctionCall": FunctionCall,
    "ToolCall": ToolCall,
    "DeltaFunctionCall": DeltaFunctionCall,
    "DeltaToolCall": DeltaToolCall,
    "DeltaMessage": DeltaMessage,
    "make_tool_call_id": _identifier,
}
"""What a parser makes on its way, as the servers define it."""

sys.meta_path.append(_Finder())
logging.disable(logging.CRITICAL)
