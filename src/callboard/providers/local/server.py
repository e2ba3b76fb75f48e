"""A llama.cpp server in this process, from xllamacpp (extra `local`). It listens on loopback, with a key."""

from __future__ import annotations

import asyncio
import atexit
import os
import secrets
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from callboard.errors import ModelFileError, NoSuchModel
from callboard.extras import require_extra
from callboard.providers.local.gguf import Gguf, read_gguf
from callboard.providers.local.memory import CACHE_SIZES, CacheType, LocalContext, Memory, choose_context, read_memory
from callboard.providers.local.model_files import known_models, locate
from callboard.providers.local.saved_prompts import BATCH, SavedPrompts, prompts_directory

_MIN_IDLE: Final = 256 << 20
"""Bytes of memory for conversations that are not active, on a small machine."""


class EmbeddedServer:
    """Serves one model file; loaded when it is first needed, gone with the process.

    Args:
        path: A GGUF file.
        context: Context in tokens; 0 takes the model's window, or what fits into the memory.
        cache_type: Type of the cache.
        digest: The file's SHA-256, if it is known.
    """

    def __init__(self, path: Path, context: int = 0, cache_type: CacheType = "f16", digest: str = "") -> None:
        self._path = path
        self._setting = context
        self._cache_type = cache_type
        self._digest = digest
        self._lock = asyncio.Lock()
        self._server: Any = None
        self.prompts = SavedPrompts(self)
        self.api_key = secrets.token_urlsafe()
        self.base_url = ""

    @cached_property
    def context(self) -> LocalContext:
        """The context of the model, chosen by the memory that is free when this is first asked."""
        memory = read_memory()
        # Servers of this process that are not loaded yet take their memory later.
        waiting = [each for each in _servers.values() if each is not self and not each.base_url]
        promised = sum(each.context.cache_bytes + each.file_bytes for each in waiting if "context" in vars(each))
        memory = Memory(memory.total, max(0, memory.free - promised))
        return choose_context(self._gguf.context, self.token_bytes, self.file_bytes, self._setting, memory)

    @cached_property
    def _gguf(self) -> Gguf:
        return read_gguf(self._path)

    @property
    def token_bytes(self) -> float:
        """Memory of one token in the cache."""
        return self._gguf.token_bytes * CACHE_SIZES[self._cache_type]

    @cached_property
    def identity(self) -> str:
        """The model's file and the settings that a computed prompt depends on."""
        about = self._path.stat()
        return f"{self._digest or (str(self._path), about.st_size, about.st_mtime_ns)} {self._cache_type}"

    @cached_property
    def file_bytes(self) -> int:
        return self._path.stat().st_size

    async def start(self) -> None:
        """Loads the model, which takes seconds. Raises CallerError without xllamacpp, ModelFileError if it cannot."""
        async with self._lock:
            if self._server is None:
                self._server = await asyncio.to_thread(self._load)
                self.base_url = f"{self._server.listening_address}/v1"

    def stop(self) -> None:
        """Stops the server once its open replies have ended. One whose client is gone ends with its next token."""
        self._server = None

    def _load(self) -> Any:
        require_extra("local")
        import xllamacpp  # noqa: PLC0415  # 100 MB of native code, loaded on first use

        settings = xllamacpp.CommonParams()
        settings.model.path = str(self._path)
        settings.n_ctx = self.context.tokens
        settings.n_parallel = 1
        if self._cache_type != "f16":
            settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_Q8_0
        # Count only processors that this process may use: more threads would wait for each other.
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = processors
        settings.use_jinja = True
        settings.verbosity = -1
        settings.warmup = False
        settings.ui = False
        settings.hostnames = ["127.0.0.1"]
        settings.port = 0
        # Conversations that are not active. llama.cpp would take up to 8 GB for them.
        settings.cache_ram_mib = min(settings.cache_ram_mib, max(_MIN_IDLE, read_memory().total // 8) >> 20)
        settings.n_ubatch = BATCH
        # Text that repeats the prompt is guessed from it: changed functions are half as fast again on two processors.
        settings.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        settings.slot_save_path = f"{prompts_directory()}{os.sep}"
        settings.api_keys = [self.api_key]
        try:
            return xllamacpp.Server(settings)
        except RuntimeError as error:
            raise ModelFileError(f"llama.cpp cannot load it: {error}", path=str(self._path)) from None


# Loaded models, for as long as the process lives.
_servers: dict[tuple[Path, int, CacheType], EmbeddedServer] = {}


@atexit.register
def _stop_servers() -> None:
    """End the threads of llama.cpp. A thread that computes while the process frees its code crashes it."""
    for server in _servers.values():
        server.stop()


def find_server(model: str, context: int = 0, cache_type: CacheType = "f16") -> EmbeddedServer:
    """Return the server of a catalogue's model, or of a path to a GGUF file; see `EmbeddedServer`.

    Raises:
        NoSuchModel: The file is not here.
        ModelFileError: It is not a GGUF file.
    """
    # This costs 10 ms, which only a local model needs.
    require_extra("local")
    if model.endswith(".gguf"):
        path, digest = Path(model).expanduser(), ""
        if not path.is_file():
            hint = "name a GGUF file that is here, or a model of `callboard models list`, which is downloaded"
            raise NoSuchModel("no such file", path=model, hint=hint)
    else:
        path, digest = locate(model), known_models().find(model).sha256
    key = (path.resolve(), context, cache_type)
    return _servers.setdefault(key, EmbeddedServer(*key, digest))
