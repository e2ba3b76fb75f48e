"""A patch in either format."""

from __future__ import annotations

from callboard.coding.edits.apply_patch import BEGIN, read_apply_patch
from callboard.coding.edits.hunks import FilePatch
from callboard.coding.edits.unified_diff import read_unified


def read_patch(text: str, path: str = "") -> list[FilePatch]:
    """The files of a patch; `path` is the one of a unified diff that names none. Raises EditRefused."""
    return read_apply_patch(text) if BEGIN in text else read_unified(text, path)
