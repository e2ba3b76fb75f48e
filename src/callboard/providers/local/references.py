"""Models from elsewhere: `hf:OWNER/REPO/FILE`, a URL with its SHA-256, or a file. Each is pinned at its first pull.

Law: the hash of a pinned name changes only if the user states the new hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from callboard.errors import CallerError, ModelFileError
from callboard.providers.local.gguf import read_gguf
from callboard.providers.local.model_files import (
    CatalogueEntry,
    Copy,
    Digest,
    Hub,
    Name,
    Place,
    Url,
    directory,
    known_models,
    shipped_catalogue,
)
from callboard.providers.local.sources import ask_source, describe_source
from callboard.storage.atomic_file import write_private
from callboard.text.display import display

_HUB: Final = re.compile(r"hf:([\w.-]+/[\w.-]+)/([^@?#]+\.gguf)(?:@([\w./-]+))?", re.IGNORECASE)
_PART: Final = re.compile(r"-\d{5}-of-\d{5}$")
_MAX_TITLE: Final = 60
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def parse_reference(text: str) -> Hub | Url | Copy | None:
    """Return the source that a reference names, or None if the text is the name of a model. Raises CallerError."""
    if text.startswith("hf:"):
        match = _HUB.fullmatch(text)
        if match is None or ".." in text.split("/"):
            raise CallerError("not a file of the hub", path=text, hint="write hf:OWNER/REPO/FILE.gguf")
        return Hub(match[1], match[2], match[3] or "main")
    if "://" in text:
        url = urlsplit(text)
        if url.scheme != "https" and not (url.scheme == "http" and url.hostname in _LOOPBACK):
            raise CallerError("not an https URL", path=text.partition("?")[0])
        if "@" in url.netloc:
            raise CallerError("the URL has a user or password", path=url.hostname or "", hint="leave them out")
        return Url(text)
    if text.lower().endswith(".gguf") or "/" in text:
        path = Path(text).expanduser().resolve()
        if not path.is_file():
            raise CallerError("no such file", path=text, hint="name a GGUF file, hf:OWNER/REPO/FILE.gguf or a URL")
        return Copy(str(path))
    return None


async def find_entry(source: Hub | Url | Copy, sha256: str = "", *, patience: float = 10.0) -> CatalogueEntry:
    """Return the entry of a model from elsewhere. Its server is asked for the size and the hash.

    Args:
        source: Where the file is.
        sha256: The hash that the user states. A URL needs one.
        patience: Seconds that a server may be silent.

    Raises:
        CallerError: The name of the file cannot name a model, or the hash is missing or malformed.
        ModelFileError: The server does not answer, or its file has another hash.
    """
    name = _find_name(source)
    sha256 = sha256.lower().removeprefix("sha256:")
    if sha256:
        _check(sha256, Digest, "not a SHA-256", "--sha256", "it has 64 hexadecimal digits")
    directory().mkdir(parents=True, exist_ok=True)
    if isinstance(source, Copy):
        size, digest = await asyncio.to_thread(_hash_file, Path(source.path))
    else:
        about = await ask_source(source, directory(), patience=patience)
        size, digest = about.size, about.sha256 if re.fullmatch("[0-9a-f]{64}", about.sha256) else ""
        if isinstance(source, Hub) and re.fullmatch("[0-9a-f]{40}", about.revision):
            source = msgspec.structs.replace(source, revision=about.revision)
    if sha256 and digest and sha256 != digest:
        raise ModelFileError(f"has the SHA-256 {digest}, not {sha256}", path=describe_source(source))
    if not (digest or sha256):
        hint = "give --sha256; the page of the file has it"
        raise CallerError("the SHA-256 is not known", path=describe_source(source), hint=hint)
    if size <= 0:
        hint = "download it, and pull the file"
        raise ModelFileError("the server does not say the size", path=describe_source(source), hint=hint)
    return CatalogueEntry(name, name, size, "", sha256 or digest, 0, (source,))


def pin(entry: CatalogueEntry, *, replace: bool = False) -> None:
    """Pin a model to its hash. With `replace`, another hash replaces the pinned one, and the old file is deleted.

    Raises:
        CallerError: The catalogue has the name.
        ModelFileError: The name is pinned to another hash.
    """
    place = Place(entry)
    before = next((each for each in known_models().models if each.name.lower() == entry.name.lower()), None)
    if before in shipped_catalogue().models:
        raise CallerError("the catalogue has a model of this name", path=entry.name, hint="rename the file")
    if before is not None and before.sha256 != entry.sha256:
        if not replace:
            raise ModelFileError(
                f"{describe_source(entry.sources[0])} has the SHA-256 {entry.sha256}, but {before.name} is pinned to "
                f"{before.sha256} from {describe_source(before.sources[0])}",
                hint=f"to accept the other file, add --sha256 {entry.sha256}",
            )
        place.clear()
    if before is None or before.sha256 != entry.sha256:
        write_private(place.pin, msgspec.json.encode(entry))


def complete_entry(name: str) -> str:
    """Read the context and the title of a downloaded model from its file. Return a remark, or "".

    Raises:
        ModelFileError: The file is not a GGUF file. It is deleted, with its pin.
    """
    entry = known_models().find(name)
    place = Place(entry)
    try:
        about = read_gguf(place.file, whole=True)
    except ModelFileError:
        place.clear()
        place.pin.unlink()
        raise
    title, licence = (display(each, _MAX_TITLE) for each in (about.title or name, about.licence))
    complete = msgspec.structs.replace(entry, title=title, licence=licence, context=about.context)
    write_private(place.pin, msgspec.json.encode(complete))
    return "" if about.chat_template else "it has no chat template, so it cannot answer conversations"


def _hash_file(path: Path) -> tuple[int, str]:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return file.tell(), digest
    except OSError as error:
        raise ModelFileError(error.strerror or "cannot be read", path=str(path)) from None


def _find_name(source: Hub | Url | Copy) -> str:
    match source:
        case Hub(file=path) | Copy(path=path):
            pass
        case Url(url=url):
            path = unquote(urlsplit(url).path)
    file = path.rpartition("/")[2] if not isinstance(source, Copy) else Path(path).name
    name = re.sub(r"\.gguf$", "", file, flags=re.IGNORECASE)
    if _PART.search(name):
        hint = "merge them with llama-gguf-split --merge, and pull the file; or choose a file that is whole"
        raise CallerError("the file is one part of several", path=file, hint=hint)
    _check(name, Name, "cannot name a model", display(file, 120), "use letters, digits, dots, _ and -")
    return name


def _check(text: str, kind: object, problem: str, path: str, hint: str) -> None:
    try:
        msgspec.convert(text, kind)
    except msgspec.ValidationError:
        raise CallerError(problem, path=path, hint=hint) from None
