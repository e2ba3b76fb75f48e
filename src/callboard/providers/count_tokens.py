"""Ask a model's endpoint how many tokens a request has.

Two tables have the ways to count: of a wire, and of a server of the Chat Completions wire, whose `owned_by` in the list
of models says which server it is.

Law: an answer that is late, refused or no plausible count gives no count, so that the caller estimates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from callboard import core
from callboard.errors import CallboardError, ProviderError
from callboard.profiles import Resolution
from callboard.providers.adapt_request import adapt_body

if TYPE_CHECKING:
    from callboard.providers.http_model import HttpModel

COUNT_SECONDS: Final = 2.0
"""Time limit of all questions of one count, in seconds: a client waits for them before its request is sent."""
_MAX_ANSWER: Final = 64 * 1024 * 1024
"""Maximum bytes of an answer. llama.cpp and vLLM send the tokens themselves."""
BYTES_PER_TOKEN: Final = 4
"""Approximate bytes of a token, in English and in code."""
_MAX_TOKENS_PER_BYTE: Final = 4
_TEMPLATE_TOKENS: Final = 65_536
"""Tokens of a chat template's own text. Larger counts are plausible up to four tokens for each byte of the request: a
byte is at most one token, but templates may repeat a text or indent a schema."""
_PREFILL_FIELDS: Final = ("add_generation_prompt", "continue_final_message")
_REFUSED: Final = frozenset({400, 413, 422})
"""Statuses about this request. The endpoint may count the next one."""


class _Answer(msgspec.Struct):
    prompt: str = ""
    tokens: list[Any] = []
    count: int = 0
    input_tokens: int = 0
    totalTokens: int = 0  # noqa: N815  # Google's name


class TokenCount(NamedTuple):
    """The tokens of a request. `is_exact` is True if the endpoint's own tokenizer counted all of the request."""

    tokens: int
    is_exact: bool


class TokenizerError(Exception):
    """No count came. If not `is_lasting`, only this request was refused."""

    def __init__(self, why: str, *, is_lasting: bool = True) -> None:
        super().__init__(why)
        self.is_lasting = is_lasting


class _Step(NamedTuple):
    """A question of a count. `make_body` gets the request's body and the answer of the step before."""

    url: str
    make_body: Callable[[Mapping[str, Any], _Answer], Any]


class Tokenizer(msgspec.Struct, frozen=True):
    """How one kind of endpoint counts."""

    steps: tuple[_Step, ...]
    read: Callable[[_Answer], int]
    counts_files: bool = True
    """True if pictures and other files count as what they cost."""
    counts_template: bool = True
    """True if the model's chat template is applied before the count."""

    @property
    def paths(self) -> str:
        """The paths that are asked, for people."""
        return ", ".join([step.url.rpartition("}")[2] for step in self.steps])


def _select(*names: str) -> Callable[[Mapping[str, Any], _Answer], Any]:
    return lambda body, _: {name: body[name] for name in names if name in body}


def _join_texts(body: Mapping[str, Any], _: _Answer) -> Any:
    parts = [body.get("messages"), body.get("tools")]
    return {"model": body.get("model"), "prompt": msgspec.json.encode(parts).decode(), "add_special_tokens": False}


_READ_FIELDS: Final = (
    *("model", "messages", "system", "tools", "tool_choice", "thinking", "cache_control"),
    *("output_config", "output_format", "context_management", "mcp_servers"),
)
_OF_WIRES: Mapping[str, Tokenizer] = MappingProxyType(
    {
        "messages": Tokenizer(
            (_Step("{base}/v1/messages/count_tokens", _select(*_READ_FIELDS)),), lambda answer: answer.input_tokens
        ),
        "responses": Tokenizer(
            (
                _Step(
                    "{base}/responses/input_tokens",
                    _select("model", "input", "instructions", "tools", "tool_choice", "reasoning", "text"),
                ),
            ),
            lambda answer: answer.input_tokens,
        ),
        "gemini": Tokenizer(
            (_Step("{base}{resource}:countTokens", lambda body, _: {"generateContentRequest": body}),),
            lambda answer: answer.totalTokens,
        ),
    }
)
_OF_SERVERS: Mapping[str, Tokenizer] = MappingProxyType(
    {
        "llamacpp": Tokenizer(
            (
                _Step("{root}/apply-template", lambda body, _: body),
                _Step(
                    "{root}/tokenize",
                    lambda _, answer: {"content": answer.prompt, "add_special": True, "parse_special": True},
                ),
            ),
            lambda answer: len(answer.tokens),
            counts_files=False,
        ),
        "vllm": Tokenizer(
            (
                _Step(
                    "{root}/tokenize",
                    _select("model", "messages", "tools", "chat_template_kwargs", *_PREFILL_FIELDS),
                ),
            ),
            lambda answer: answer.count,
            counts_files=False,
        ),
        # SGLang takes only a text, without the tokens that the chat template adds.
        "sglang": Tokenizer(
            (_Step("{root}/tokenize", _join_texts),),
            lambda answer: answer.count,
            counts_files=False,
            counts_template=False,
        ),
    }
)
"""Servers of the Chat Completions wire, by a provider's name or by the `owned_by` of their list of models."""


def find_tokenizer(wire: str, server: str) -> Tokenizer | None:
    """Return how an endpoint counts, if it can. `server` is a provider's name, or the `owned_by` of a list."""
    return _OF_SERVERS.get("llamacpp" if server == "local" else server) if wire == "chat" else _OF_WIRES.get(wire)


async def count_tokens(model: HttpModel, request: core.Request, server: str, headers: Mapping[str, str]) -> TokenCount:
    """Return the tokens of the request as `model` would send it. Start a local model, which has no time limit.

    Args:
        model: The model whose endpoint is asked.
        request: The request.
        server: The server program, as `find_tokenizer` takes it.
        headers: Headers to add to the model's own.

    Raises:
        TokenizerError: There is no plausible count.
        CallerError: The request cannot be sent.
    """
    tokenizer = find_tokenizer(model.wire.name, server)
    if tokenizer is None:
        raise TokenizerError("no tokenizer of this server is known")
    await model.start_server()
    prepared = model.prepare(request, model.plan)
    body = adapt_body(prepared.encoded.body, model.resolution.profile)
    path = model.wire.path(prepared.adapted)
    if model.wire.name == "gemini":
        body = {**body, "model": f"models/{model.resolution.model.removeprefix('models/')}"}
    base = model.base_url
    parts = {"base": base, "root": base.removesuffix("/v1"), "resource": path.rpartition(":")[0]}
    answer = _Answer()
    size = len(msgspec.json.encode(body))
    try:
        async with asyncio.timeout(COUNT_SECONDS):
            for step in tokenizer.steps:
                sent = msgspec.json.encode(step.make_body(body, answer))
                answer = await _ask(model, step.url.format(**parts), {**model.headers, **headers}, sent)
    except TimeoutError:
        raise TokenizerError(f"no answer within {COUNT_SECONDS:g} s") from None
    count = tokenizer.read(answer)
    if not 0 < count <= _MAX_TOKENS_PER_BYTE * size + _TEMPLATE_TOKENS:
        raise TokenizerError("the answer has no plausible count")
    has_files = any(
        isinstance(part, core.PictureContent | core.FileContent)
        for canister in prepared.adapted.canisters
        if not isinstance(canister, core.InvocationCanister)
        for part in canister.content
    )
    return TokenCount(count, tokenizer.counts_template and (tokenizer.counts_files or not has_files))


async def _ask(model: HttpModel, url: str, headers: Mapping[str, str], body: bytes) -> _Answer:
    try:
        async with model.transport.post(url, headers=headers, body=body) as answer:
            if answer.status != 200:
                raise TokenizerError(f"status {answer.status}", is_lasting=answer.status not in _REFUSED)
            return msgspec.json.decode(await answer.read(_MAX_ANSWER), type=_Answer)
    except (ProviderError, msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        why = error.message if isinstance(error, CallboardError) else "the answer is no count"
        raise TokenizerError(why) from None


def describe_count(resolution: Resolution) -> tuple[str, str]:
    """Return `exact` or `estimated`, and how the tokens of the model's requests are counted."""
    wire = resolution.profile.wire
    tokenizer = find_tokenizer(wire, resolution.provider)
    if tokenizer is not None:
        return "exact", f"counted by {tokenizer.paths} of the endpoint"
    servers = " or ".join([name for name, row in _OF_SERVERS.items() if row.counts_template])
    return "estimated", f"{BYTES_PER_TOKEN} bytes a token; exact if the server's list of models is owned by {servers}"
