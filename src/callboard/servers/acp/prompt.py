"""Read what a client's user sends: texts, files, pictures.

Law: nothing is fetched. A file of the directory that is named is read by the model with its own tools, if the rules
let it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)

from callboard.core import PictureContent
from callboard.errors import CallerError
from callboard.text.display import collapse

ContentBlock: TypeAlias = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)

MAX_TEXT: Final = 2_000_000
"""Characters of a prompt, with the files in it."""
MAX_PICTURES: Final = 20
_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


class Prompt(NamedTuple):
    """A prompt: its text, and the pictures that were shown with it."""

    text: str
    pictures: tuple[PictureContent, ...]


def read_prompt(blocks: Iterable[ContentBlock], root: Path) -> Prompt:
    """The prompt of a client's blocks. `root` is the session's directory. Raises CallerError."""
    texts: list[str] = []
    pictures: list[PictureContent] = []
    for at, block in enumerate(blocks):
        match block:
            case TextContentBlock(text=text):
                texts.append(text)
            case ImageContentBlock(data=data, mime_type=kind):
                pictures.append(_read_picture(data, kind, f"prompt[{at}]"))
            case ResourceContentBlock(uri=uri):
                texts.append(_name_of(uri, root))
            case EmbeddedResourceContentBlock(resource=resource):
                if isinstance(resource, BlobResourceContents):
                    hint = "send its text, or a picture"
                    raise CallerError("a file that is no text cannot be read", path=f"prompt[{at}]", hint=hint)
                name = _name_of(resource.uri, root)
                texts.append(f'\n<file path="{name}">\n{resource.text}\n</file>\n')
            case _:
                raise CallerError("sound cannot be heard", path=f"prompt[{at}]", hint="send text or pictures")
    # JSON can spell half a character, which is none in UTF-8.
    text = "".join(texts).encode("utf-8", "replace").decode()
    if len(text) > MAX_TEXT:
        raise CallerError(f"more than {MAX_TEXT} characters", path="prompt", hint="name files instead of sending them")
    if len(pictures) > MAX_PICTURES:
        raise CallerError(f"more than {MAX_PICTURES} pictures", path="prompt", hint="send fewer at once")
    if not text.strip() and not pictures:
        raise CallerError("there is nothing in it", path="prompt", hint="write what is to be done")
    return Prompt(text, tuple(pictures))


def _read_picture(data: str, kind: str, path: str) -> PictureContent:
    if kind not in _TYPES:
        raise CallerError(f"no picture of the type {collapse(kind)!r}", path=path, hint=f"send {', '.join(_TYPES)}")
    try:
        return PictureContent(base64.b64decode(data, validate=True), kind)
    except (binascii.Error, ValueError):
        raise CallerError("its data is not base64", path=path, hint="send the picture's bytes in base64") from None


def _name_of(uri: str, root: Path) -> str:
    """What the model reads of an address: the path from the root, of a file that lies beneath it."""
    try:
        parts = urlsplit(uri)
        path = Path(unquote(parts.path)) if parts.scheme == "file" else None
        name = str(path.relative_to(root)) if path is not None and path.is_relative_to(root) else uri
    except ValueError:
        name = uri
    return collapse(name, 1000).replace('"', "'")
