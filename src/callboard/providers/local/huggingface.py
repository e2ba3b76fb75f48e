"""Stream a file from the Hugging Face hub.

The hub is named by HF_ENDPOINT, as its own clients do; by default it is https://huggingface.co. Its client library is
not used: it brings requests and hf-xet, for one HTTP request.
Law: whatever fails is a ModelFileError, and nobody is waited for longer than `patience` seconds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from callboard.errors import ModelFileError
from callboard.providers.local.catalogue import Hub

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_DEFAULT_ENDPOINT = "https://huggingface.co"
_BLOCK = 1 << 20


def address(source: Hub) -> str:
    endpoint = os.environ.get("HF_ENDPOINT") or _DEFAULT_ENDPOINT
    return f"{endpoint.rstrip('/')}/{source.repository}/resolve/{source.revision}/{source.file}"


async def blocks(source: Hub, *, size: int, offset: int, patience: float) -> AsyncGenerator[bytes, None]:
    """The file's bytes from `offset` on, of `size` in all.

    Raises ModelFileError if the hub says no, has a file of another size, breaks off, or is silent for
    `patience` seconds: from the look-up of its name to the beginning of its answer, and before each block.
    """
    import aiohttp  # noqa: PLC0415  # costs 100 ms

    url = address(source)
    try:
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(),
            trust_env=True,
            auto_decompress=False,
        ) as session:
            async with asyncio.timeout(patience):
                response = await session.get(url, headers={"Range": f"bytes={offset}-", "Accept-Encoding": "identity"})
            async with response:
                skip = _to_skip(response, url, size=size, offset=offset)
                while block := await _block(response, patience):
                    if rest := block[skip:]:
                        yield rest
                    skip -= len(block) - len(rest)
    except TimeoutError:
        raise ModelFileError(f"silent for {patience:g} s", path=url) from None
    except (aiohttp.ClientError, OSError) as error:
        raise ModelFileError(str(error) or type(error).__name__, path=url) from None


async def _block(response: ClientResponse, patience: float) -> bytes:
    # not wait_for: before Python 3.12 it swallows a cancellation that comes together with a block
    async with asyncio.timeout(patience):
        return await response.content.read(_BLOCK)


def _to_skip(response: ClientResponse, url: str, *, size: int, offset: int) -> int:
    """How many of the reply's bytes are known already: none, or all of them where a server knows no ranges."""
    match response.status:
        case 206:
            content_range = response.headers.get("Content-Range", "")
            if content_range != f"bytes {offset}-{size - 1}/{size}":
                raise ModelFileError(
                    f"asked for bytes {offset}-{size - 1}/{size}, given {content_range[:100]!r}", path=url
                )
            return 0
        case 200:
            if response.content_length not in {size, None}:
                raise ModelFileError(f"has {response.content_length} bytes, not {size}", path=url)
            return offset
        case status:
            raise ModelFileError(f"HTTP status {status}", path=url)
