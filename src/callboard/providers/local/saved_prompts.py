"""Save the fixed part of prompts, its instructions and tools, as llama.cpp computed it, and restore it in later processes.

Laws: a restored prompt gives the same reply as a computed one, because it ends where llama.cpp ends a batch. A file is
given to llama.cpp only if it is the file that was saved. A failure costs time, never a reply.

llama.cpp compares the tokens of a restored prompt with the request, so a wrong file cannot answer another prompt.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from os.path import commonprefix
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from callboard.errors import CallboardError
from callboard.providers.backend_info import embedded_version
from callboard.providers.transport import Transport
from callboard.storage.atomic_file import StoredFile, write_private
from callboard.storage.directories import state_directory

BATCH: Final = 512
"""Tokens that llama.cpp computes at once. Another division of a prompt gives slightly different numbers."""
MIN_TOKENS: Final = 2 * BATCH
"""Shorter prompts are computed: their files would not be worth the disk."""
MAX_BYTES: Final = 4_000_000_000
"""Bytes of all saved prompts. A coding agent's prompt of 24,000 tokens has 0.3 GB for a 0.5B, and 0.7 GB for a 1.5B."""
_DISK_PART: Final = 10
"""Saved prompts take at most a tenth of the free disk space."""
_MARGIN: Final = 8
"""Tokens at the end of the fixed part that the next message may change."""
_MAX_ANSWER: Final = 64 * 1024 * 1024
_STALE_SECONDS: Final = 3600.0
_FIXED: Final = (
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "chat_template_kwargs",
)
_PROBES: Final = ("A", "?")
"""Two messages without a common beginning."""


class PromptServer(Protocol):
    """A llama.cpp server: the identity of its model and settings, and where it listens."""

    base_url: str
    api_key: str

    @property
    def identity(self) -> str: ...
    @property
    def token_bytes(self) -> float: ...


class _Record(StoredFile, frozen=True, kw_only=True):
    sha256: str
    size: int


def prompts_directory() -> Path:
    """Return the directory of saved prompts. Only the user can read it."""
    return state_directory() / "prompts"


def open_directory() -> Path | None:
    """Return the directory, made if it is missing, or None if it is not the user's alone."""
    path = prompts_directory()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = path.lstat()
        if path.is_symlink() or (hasattr(os, "getuid") and about.st_uid != os.getuid()):
            return None
        path.chmod(0o700)
    except OSError:
        return None
    return path


def list_prompts() -> list[Path]:
    """Return the files of saved prompts, the least recently used first."""
    return sorted(prompts_directory().glob("*.bin"), key=lambda path: path.lstat().st_mtime)


def clear_prompts() -> tuple[int, int]:
    """Delete all saved prompts. Return how many there were, and their bytes."""
    files = list_prompts()
    size = sum(path.lstat().st_size for path in files)
    for path in prompts_directory().glob("*"):
        with suppress(OSError):
            path.unlink()
    return len(files), size


class SavedPrompts:
    """The saved prompts of one server.

    Args:
        engine: The server. Its slot save path is the directory of saved prompts.
    """

    def __init__(self, engine: PromptServer) -> None:
        self._engine = engine
        self._lock = asyncio.Lock()
        self._known: set[bytes] = set()
        """Fixed parts that this process has asked for. llama.cpp keeps these in memory itself."""

    async def prepare(self, transport: Transport, body: Mapping[str, Any]) -> None:
        """Restore the fixed part of a request, or compute and save it. Do nothing for a known or short one."""
        messages = body.get("messages") or ()
        end = next((at for at, each in enumerate(messages) if each.get("role") not in {"system", "developer"}), 0)
        fixed = {name: body[name] for name in _FIXED if name in body} | {"messages": list(messages[:end])}
        encoded = msgspec.json.encode(fixed)
        digest = hashlib.sha256(encoded).digest()
        if len(encoded) < MIN_TOKENS or digest in self._known:
            return
        async with self._lock:
            if digest in self._known:
                return
            is_first = not self._known
            self._known.add(digest)
            with suppress(CallboardError, OSError, msgspec.MsgspecError):
                await self._prepare(transport, fixed, is_first=is_first)

    async def _prepare(self, transport: Transport, fixed: Mapping[str, Any], *, is_first: bool) -> None:
        texts = [
            (await self._ask(transport, "/apply-template", _with_message(fixed, each)))["prompt"] for each in _PROBES
        ]
        question = {"content": commonprefix(texts), "add_special": True, "parse_special": True}  # noqa: RUF071  # of texts
        tokens = (await self._ask(transport, "/tokenize", question))["tokens"]
        del tokens[max(0, len(tokens) - _MARGIN) // BATCH * BATCH :]
        folder = await asyncio.to_thread(open_directory)
        if len(tokens) < MIN_TOKENS or folder is None:
            return
        key = hashlib.sha256(msgspec.json.encode((self._engine.identity, embedded_version(), tokens))).hexdigest()
        file = folder / f"{key}.bin"
        if await asyncio.to_thread(_is_whole, file):
            if not is_first:
                # This moves the slot's conversation into the memory of llama.cpp, which a restore would not.
                await self._complete(transport, tokens[:1])
            try:
                await self._ask(transport, "/slots/0?action=restore", {"filename": file.name})
            except CallboardError:
                await asyncio.to_thread(_discard, file)
            else:
                file.touch()
                return
        if len(tokens) * self._engine.token_bytes > await asyncio.to_thread(_find_limit, folder):
            return
        await self._complete(transport, tokens)
        part = folder / f"{key}-{secrets.token_hex(4)}.part"
        try:
            saved = await self._ask(transport, "/slots/0?action=save", {"filename": part.name})
            if saved.get("n_saved") == len(tokens):
                await asyncio.to_thread(_keep, part, file)
        finally:
            part.unlink(missing_ok=True)

    async def _complete(self, transport: Transport, tokens: list[int]) -> None:
        """Let llama.cpp compute a prompt. The answer is streamed, so that the server's pings show that it works."""
        await self._post(transport, "/completion", {"prompt": tokens, "n_predict": 0, "id_slot": 0, "stream": True})

    async def _ask(self, transport: Transport, path: str, body: Mapping[str, Any]) -> Any:
        return msgspec.json.decode(await self._post(transport, path, body), type=dict[str, Any])

    async def _post(self, transport: Transport, path: str, body: Mapping[str, Any]) -> bytes:
        url = self._engine.base_url.removesuffix("/v1") + path
        headers = {"content-type": "application/json", "Authorization": f"Bearer {self._engine.api_key}"}
        async with transport.post(url, headers=headers, body=msgspec.json.encode(body)) as answer:
            content = await answer.read(_MAX_ANSWER)
        if answer.status != 200:
            raise CallboardError(f"llama.cpp refused {path}: {answer.status}")
        return content


def _with_message(fixed: Mapping[str, Any], text: str) -> dict[str, Any]:
    return {**fixed, "messages": [*fixed["messages"], {"role": "user", "content": text}]}


def _is_whole(file: Path) -> bool:
    """Whether this is the file that was saved. Delete another one."""
    try:
        record = msgspec.json.decode(file.with_suffix(".json").read_bytes(), type=_Record)
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with open(descriptor, "rb") as content:  # noqa: PTH123  # a descriptor, which no Path opens
            is_long = os.fstat(descriptor).st_size == record.size
            if is_long and hashlib.file_digest(content, "sha256").hexdigest() == record.sha256:
                return True
    except (OSError, ValueError, msgspec.MsgspecError):
        pass
    _discard(file)
    return False


def _discard(file: Path) -> None:
    for path in (file, file.with_suffix(".json")):
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _find_limit(folder: Path) -> int:
    """Return the maximum bytes of all saved prompts."""
    used = sum(path.lstat().st_size for path in list_prompts())
    return min(MAX_BYTES, (shutil.disk_usage(folder).free + used) // _DISK_PART)


def _keep(part: Path, file: Path) -> None:
    """Give a saved prompt its name, and delete the least recently used ones beyond the limit."""
    part.chmod(0o600)
    with part.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        size = content.tell()
    _discard(file)
    part.replace(file)
    write_private(file.with_suffix(".json"), msgspec.json.encode(_Record(sha256=digest, size=size)))
    total, limit = size, _find_limit(file.parent)
    for path in reversed(list_prompts()):
        if path != file and (total := total + path.lstat().st_size) > limit:
            _discard(path)
    for path in file.parent.glob("*.part"):
        if path.lstat().st_mtime < time.time() - _STALE_SECONDS:
            path.unlink(missing_ok=True)
