"""How a call of the chat looks in an editor: its kind, its title, the files it is about, and what came of it.

Law: what a model or a file wrote is shown as code, so it cannot draw a link, a picture or a question of ours.

Read what a client's user sends: texts, files, pictures.

Law: nothing is fetched. A file of the directory that is named is read by the model with its own tools, if the rules
let it.
"""

from __future__ import annotations

import base64
import binascii
import json
import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from acp.helpers import image_block, text_block, tool_content, tool_diff_content
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    ContentToolCallContent,
    EmbeddedResourceContentBlock,
    FileEditToolCallContent,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    ToolCallLocation,
    ToolKind,
)

from callboard.coding.agents.phases import actions_of_groups
from callboard.coding.chat.dry_run import ChangedFile, diff_of
from callboard.coding.workspace.file_editor import NotText, decode
from callboard.core import PictureContent, ResultCanister
from callboard.errors import CallerError
from callboard.execution.result_store import READ_RESULT
from callboard.text.display import collapse, make_visible, strip_controls
from callboard.text.truncate import truncate

ContentBlock: TypeAlias = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)

MAX_PROMPT: Final = 2_000_000
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
    if len(text) > MAX_PROMPT:
        raise CallerError(
            f"more than {MAX_PROMPT} characters", path="prompt", hint="name files instead of sending them"
        )
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


ToolContent: TypeAlias = ContentToolCallContent | FileEditToolCallContent

MAX_TEXT: Final = 100_000
"""Characters of a result that are shown."""
MAX_FILE: Final = 2_000_000
"""Bytes of a file that an editor gets whole, before and after; of a longer one it gets the changed lines."""
MAX_DEPTH: Final = 64
"""Levels of a call's arguments; deeper ones are shown as the model wrote them."""
_MAX_TITLE: Final = 200
_SUBJECTS: Final = ("command", "path", "query", "pattern", "name", "branch", "message")
"""Arguments that say what a call is about, the first that is there."""
_NAME: Final = re.compile(r"[\w-]+")
"""What an editor takes for a word, and for no link."""

_KINDS: Final[Mapping[str, ToolKind]] = {
    **dict.fromkeys(actions_of_groups(("look", "history")), "read"),
    READ_RESULT: "read",
    **dict.fromkeys(("grep", "find_files", "find_definition", "find_in_file"), "search"),
    **dict.fromkeys((*actions_of_groups(("edit",)), "put_code"), "edit"),
    "delete_file": "delete",
    **dict.fromkeys(actions_of_groups(("commit", "git_checkout", "git_branch", "check")), "execute"),
}


def kind_of(action: str) -> ToolKind:
    """The kind of an action of ours by its own name; that of anything else is not known."""
    return _KINDS.get(action, "other")


def title_of(name: str, arguments: Mapping[str, Any] | None) -> str:
    """A call in one line: the tool, and what the call is about."""
    values = arguments or {}
    action = values.get("action")
    subject = next((text for key in _SUBJECTS if isinstance(text := values.get(key), str) and text), "")
    words = [_plain_word(name, 80), _plain_word(action, 40) if isinstance(action, str) else ""]
    return " ".join([each for each in (*words, subject and _code_span(collapse(subject, _MAX_TITLE))) if each])


def locations_of(root: Path, arguments: Mapping[str, Any] | None) -> list[ToolCallLocation]:
    """The file that a call is about, and its line, if it is beneath the root."""
    values = arguments or {}
    path = values.get("path")
    if not isinstance(path, str) or not path or "\0" in path:
        return []
    place = os.path.normpath(root / path)
    if not Path(place).is_relative_to(root):
        return []
    line = next((at for key in ("line", "start_line") if type(at := values.get(key)) is int and at > 0), None)
    return [ToolCallLocation(path=place, line=line)]


def input_of(arguments: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The arguments as programs read them; None where they are nested deeper than most parsers go."""
    return arguments if arguments is not None and _is_shallow(arguments) else None


def describe_call(arguments: Mapping[str, Any] | None, raw: str) -> list[ToolContent]:
    """All of a call's arguments, to be looked at before it runs; what is invisible in them is spelled out."""
    if arguments is None or not _is_shallow(arguments):
        return [_block(fence(make_visible(raw)))]
    command = arguments.get("command")
    if isinstance(command, str) and len(arguments) == 1:
        return [_block(fence(make_visible(command)))]
    return [_block(fence(make_visible(json.dumps(arguments, ensure_ascii=False, indent=2))))]


def describe_changes(root: Path, changes: Iterable[ChangedFile]) -> list[ToolContent]:
    return [_describe_change(root, each) for each in changes if each.before is not None or each.after is not None]


def describe_invisible(changes: Iterable[ChangedFile]) -> list[ToolContent]:
    """The changed lines with what is invisible in them spelled out, where something is: editors draw diffs themselves."""
    diff = diff_of(changes)
    visible = make_visible(diff, keep="\r\n\t")
    return [] if visible == diff else [_block(fence(visible))]


def describe_result(result: ResultCanister) -> list[ToolContent]:
    contents: Sequence[ToolContent] = [
        tool_content(image_block(base64.b64encode(part.data).decode("ascii"), part.mime_type))
        for part in result.content
        if isinstance(part, PictureContent) and part.data
    ]
    text = result.error.message if result.error else result.text
    return [*([_block(fence(truncate(text, MAX_TEXT)))] if text else []), *contents]


def fence(text: str) -> str:
    """A text as a block of code, which it cannot end."""
    ticks = "`" * max(3, _longest_ticks(text) + 1)
    return f"{ticks}\n{strip_controls(text)}\n{ticks}"


def _describe_change(root: Path, change: ChangedFile) -> ToolContent:
    try:
        if max(len(data or b"") for data in (change.before, change.after)) <= MAX_FILE:
            before, after = (None if data is None else decode(data).text for data in (change.before, change.after))
            return tool_diff_content(str(root / change.path), after or "", before)
    except NotText:
        pass
    return _block(fence(diff_of([change])))


def _block(text: str) -> ContentToolCallContent:
    return tool_content(text_block(text))


def _is_shallow(value: Any) -> bool:
    """Whether a value is nested no deeper than MAX_DEPTH."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner = [each.values() if isinstance(each, Mapping) else each for each in level]
        level = [each for values in inner for each in values if isinstance(each, (Mapping, list, tuple)) and each]
        if not level:
            return True
    return False


def _plain_word(text: str, longest: int) -> str:
    """A name as it is; what is none, as code."""
    word = collapse(text, longest)
    return word if not word or _NAME.fullmatch(word) else _code_span(word)


def _code_span(text: str) -> str:
    ticks = "`" * (_longest_ticks(text) + 1)
    return f"{ticks}{text}{ticks}" if len(ticks) == 1 else f"{ticks} {text} {ticks}"


def _longest_ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
