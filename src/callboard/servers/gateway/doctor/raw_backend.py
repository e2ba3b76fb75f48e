"""Ask a backend on the Chat Completions wire directly, without the gateway.

The backend gets exactly the request, and its answer is read unchanged: the doctor looks for faults that the gateway
would repair. Every result is a `RawReply`: only a spent budget raises, and at most `MAX_BYTES` of an answer are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from callboard.errors import CallboardError
from callboard.providers import Transport
from callboard.providers.lessons import STATUSES
from callboard.providers.transport import HttpResponse
from callboard.servers.gateway.doctor.probes import Body, DoctorBudget
from callboard.servers.gateway.redaction import Redactor
from callboard.text.display import collapse

MAX_BYTES: Final = 256 * 1024
"""Maximum bytes of one answer, hundreds of times more than the requests ask for."""
_EXCERPT: Final = 160


def dig(value: Any, *path: str | int) -> Any:
    """Return the value at a path in a JSON value, or None if there is none."""
    for key in path:
        if isinstance(key, str):
            value = value.get(key) if isinstance(value, dict) else None
        else:
            value = value[key] if isinstance(value, list) and -len(value) <= key < len(value) else None
    return value


class RawReply(msgspec.Struct, frozen=True):
    """An answer, with its JSON object as `body`. `fault` says why it is not a reply, "" if it is."""

    status: int = 0
    body: Mapping[str, Any] = {}
    fault: str = ""

    @property
    def refusal(self) -> str:
        """Status and message if the backend refused the content of the request. "" for a reply or another failure."""
        return self.fault if self.status in STATUSES else ""

    @property
    def open_reason(self) -> str:
        """Why the reply proves nothing: no answer arrived, or the model was still reasoning. "" if neither."""
        if self.fault:
            return "" if self.refusal else self.fault
        text = self.text.strip()
        is_thought = self.finish_reason == "length" and not self.calls and (not text or text.startswith("<think"))
        return "the reply was cut during reasoning" if is_thought else ""

    @property
    def is_answer(self) -> bool:
        """True if the backend accepted the request or refused its content. It was not busy, slow or broken."""
        return not self.fault or (self.status in STATUSES and self.status < 500)

    @property
    def text(self) -> str:
        content = dig(self.body, "choices", 0, "message", "content")
        return content if isinstance(content, str) else ""

    @property
    def calls(self) -> list[str]:
        """Names of the calls in the wire's field."""
        calls = _list(dig(self.body, "choices", 0, "message", "tool_calls"))
        names = [dig(each, "function", "name") for each in calls]
        return [name for name in names if isinstance(name, str) and name]

    @property
    def finish_reason(self) -> str:
        reason = dig(self.body, "choices", 0, "finish_reason")
        return reason if isinstance(reason, str) else ""

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens of the prompt, as the backend counts them. None if it does not."""
        count = dig(self.body, "usage", "prompt_tokens")
        return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None

    @property
    def first_tokens(self) -> list[str]:
        """The most likely first tokens that have a log-probability."""
        tokens = _list(dig(self.body, "choices", 0, "logprobs", "content", 0, "top_logprobs"))
        pairs = [(dig(each, "token"), dig(each, "logprob")) for each in tokens]
        return [
            token
            for token, number in pairs
            if isinstance(token, str) and isinstance(number, int | float) and not isinstance(number, bool)
        ]


class RawBackend:
    """A backend at `url`, asked with these headers for one model.

    The budget counts each request. The redactor masks secrets in messages of servers, because some repeat the key.
    """

    def __init__(
        self,
        transport: Transport,
        url: str,
        headers: Mapping[str, str],
        model: str,
        budget: DoctorBudget,
        *,
        redactor: Redactor | None = None,
    ) -> None:
        self._transport = transport
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._headers = headers
        self._model = model
        self._budget = budget
        self._redactor = redactor or Redactor()
        self._sampling: dict[str, Any] = {"temperature": 0}
        self.renamed_fields: dict[str, str] = {}
        """This backend's own names for fields of the body."""

    async def ask(self, body: Body) -> RawReply:
        """Return the reply to the body. Raises BudgetSpent."""
        reply = await self._send(body)
        if self._sampling and reply.status == 400 and "temperature" in reply.fault:
            self._sampling = {}
            reply = await self._send(body)
        return reply

    async def _send(self, body: Body) -> RawReply:
        seconds = self._budget.take()
        fields = {self.renamed_fields.get(key, key): value for key, value in body.items()}
        content = msgspec.json.encode({"model": self._model, **self._sampling, **fields})
        try:
            async with (
                asyncio.timeout(seconds),
                self._transport.post(self._url, headers=self._headers, body=content) as response,
            ):
                return await self._read(response)
        except TimeoutError:
            return RawReply(fault=f"no answer within {seconds:.1f} s")
        except CallboardError as error:
            return RawReply(fault=self._excerpt(error.message))

    async def _read(self, response: HttpResponse) -> RawReply:
        content = await response.read(MAX_BYTES)
        body: Any = None
        with suppress(msgspec.MsgspecError, RecursionError, UnicodeError):
            body = msgspec.json.decode(content)
        if response.status >= 400:
            texts = [dig(body, *path) for path in (("error", "message"), ("message",), ("error",), ("detail",))]
            words = next((each for each in texts if isinstance(each, str) and each), _text_of(content))
            return RawReply(response.status, fault=f"{response.status}: {self._excerpt(words)}")
        if not isinstance(body, dict):
            return RawReply(response.status, fault=f"not a JSON object: {self._excerpt(_text_of(content))}")
        return RawReply(response.status, body)

    def _excerpt(self, words: str) -> str:
        return collapse(self._redactor.text(words), _EXCERPT)


def _text_of(content: bytes) -> str:
    return content[: 4 * _EXCERPT].decode("utf-8", "replace")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
