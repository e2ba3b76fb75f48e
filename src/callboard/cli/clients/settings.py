"""The settings that each client needs to work with a gateway, and the catalogue of models that Codex wants.

Sources: Codex 0.169 (`codex debug models` shows a catalogue), Claude Code 2.1 and its list of environment variables,
Qwen Code 0.15 and 0.24, Gemini CLI 0.61; each set of keys is run with the client by `make test-clients`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

NO_KEY = "callboard"
"""What a client sends that wants a key, where the gateway wants none."""


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Values that a client's settings are made of."""

    gateway: str
    """Its URL with `/v1`."""
    models: tuple[str, ...]
    """The first is the default."""
    home: str
    """The client's directory."""
    key: str = ""
    """The gateway's."""
    context: int = 0
    """Tokens that the model reads; 0 if unknown."""


class ClientFile(msgspec.Struct, frozen=True):
    """Settings in a file of the client. Of one that is `ours` nothing else is kept."""

    path: str
    form: Literal["toml", "json"]
    values: Mapping[str, Any]
    ours: bool = False


class Client(msgspec.Struct, frozen=True):
    """`home` is its directory in the user's, `home_variable` the environment variable that names another. `environment`
    are variables that it has to be started with, since no file of it can hold what they say.
    """

    command: str
    home: str
    home_variable: str
    files: Callable[[ClientOptions], tuple[ClientFile, ...]]
    environment: Callable[[ClientOptions], Mapping[str, str]] = lambda _: {}


_INSTRUCTIONS = """\
You are a coding agent in a terminal, on the user's own machine. Work until what was asked for is done, then say in a \
few sentences what you did.

- Act with your tools. To find out what is there, to run programs and tests, call the shell tool; never ask the user \
to run a command for you, and never only describe a change that you could make.
- Read a file before you change it. Change no more than the task needs, in the style of what is around it.
- To change files call apply_patch, with a patch in this form and nothing else:

*** Begin Patch
*** Update File: path/of/file.py
@@ def the_function_around_it():
 a line that stays
-a line that goes
+a line that comes
*** Add File: path/of/new_file.py
+each of its lines
*** Delete File: path/of/old_file.py
*** End Patch

  Paths are relative to the working directory. Three lines that stay, before and after, say where a change is.
- Check what you did: run the tests or the program, and read what they say.
- Follow the instructions of AGENTS.md files for what is below them. Do not commit unless you are asked to.
"""


def _codex(options: ClientOptions) -> tuple[ClientFile, ...]:
    catalogue = f"{options.home}/callboard-models.json"
    provider = {"name": "Callboard", "base_url": options.gateway, "wire_api": "responses"}
    if options.key:
        provider["experimental_bearer_token"] = options.key
    values: dict[str, Any] = {
        "model": options.models[0],
        "model_provider": "callboard",
        "model_catalog_json": catalogue,
        "web_search": "disabled",  # it is OpenAI that runs it
        "model_providers": {"callboard": provider},
    }
    models = [_catalogue_entry(name, place, options.context) for place, name in enumerate(options.models, 1)]
    return (
        ClientFile(f"{options.home}/config.toml", "toml", values),
        ClientFile(catalogue, "json", {"models": models}, ours=True),
    )


def _catalogue_entry(name: str, place: int, context: int) -> dict[str, Any]:
    """What Codex wants to know of a model. Without `apply_patch_tool_type` it is not given the tool."""
    return {
        "slug": name,
        "display_name": name,
        "supported_reasoning_levels": [],
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": True,
        "priority": place,
        "base_instructions": _INSTRUCTIONS,
        "apply_patch_tool_type": "freeform",
        "support_verbosity": False,
        "truncation_policy": {"mode": "tokens", "limit": 10_000},
        "input_modalities": ["text", "image"],
        "experimental_supported_tools": [],
        **({"context_window": context} if context else {}),
    }


def _claude(options: ClientOptions) -> tuple[ClientFile, ...]:
    model = options.models[0]
    variables = {
        "ANTHROPIC_BASE_URL": options.gateway.removesuffix("/v1"),
        "ANTHROPIC_AUTH_TOKEN": options.key or NO_KEY,
        "ANTHROPIC_API_KEY": "",  # else the user's own would be sent to the backend
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # it changes from request to request, in front of what a backend keeps
    }
    return (ClientFile(f"{options.home}/settings.json", "json", {"env": variables}),)


def _qwen(options: ClientOptions) -> tuple[ClientFile, ...]:
    generation = {"generationConfig": {"contextWindowSize": options.context}} if options.context else {}
    entry = {"baseUrl": options.gateway, "envKey": "CALLBOARD_API_KEY", **generation}
    values: dict[str, Any] = {
        # Before 0.24 it knows providers by the names of their protocols only.
        "modelProviders": {"openai": [{"id": name, "name": name, **entry} for name in options.models]},
        "env": {"CALLBOARD_API_KEY": options.key or NO_KEY},
        "security": {"auth": {"selectedType": "openai"}},
        "model": {"name": options.models[0]},
    }
    return (ClientFile(f"{options.home}/settings.json", "json", values),)


def _gemini(options: ClientOptions) -> tuple[ClientFile, ...]:
    values: dict[str, Any] = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "model": {"name": options.models[0]},
    }
    return (ClientFile(f"{options.home}/settings.json", "json", values),)


def _gemini_environment(options: ClientOptions) -> Mapping[str, str]:
    """It reads them from a `.env` as well, but from the project's own first, and from none where it trusts no folder."""
    return {
        "GOOGLE_GEMINI_BASE_URL": options.gateway.removesuffix("/v1"),
        "GEMINI_API_KEY": options.key or NO_KEY,
    }


CLIENTS: Mapping[str, Client] = MappingProxyType(
    {
        "codex": Client("codex", ".codex", "CODEX_HOME", _codex),
        "claude": Client("claude", ".claude", "CLAUDE_CONFIG_DIR", _claude),
        "gemini": Client("gemini", ".gemini", "", _gemini, _gemini_environment),
        "qwen": Client("qwen", ".qwen", "QWEN_HOME", _qwen),
    }
)
