# ruff: noqa: INP001  # a script's module: no package
"""Licenses of the dependencies, from a CycloneDX SBOM, and whether Callboard may depend on them.

Callboard is under Apache-2.0 and contains none of its dependencies: pip installs each one separately. So weak copyleft,
which asks for the source of the dependency alone, is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FREE = "0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause BlueOak-1.0.0 BSL-1.0 CC0-1.0 ISC MIT MIT-0 PSF-2.0 Python-2.0 Unlicense Zlib"
WEAK_COPYLEFT = "LGPL-2.0-or-later LGPL-2.1-or-later LGPL-3.0-only LGPL-3.0-or-later MPL-2.0"
ALLOWED = {*FREE.split(), *WEAK_COPYLEFT.split()}
"""SPDX identifiers."""
NAMES = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-2-Clause OR BSD-3-Clause",
    "GNU Library or Lesser General Public License (LGPL)": "LGPL-2.0-or-later",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
"""Identifiers of names that packages give instead."""
FILES = {"agent-client-protocol": "Apache-2.0", "protobuf": "BSD-3-Clause"}
"""Licenses of packages that name none in their metadata, from their license files."""


def read_licenses(sbom: Path) -> Iterator[tuple[str, str, str]]:
    """Return the name, version and license of each component; "" if the license is not known."""
    for component in json.loads(sbom.read_text("utf-8"))["components"]:
        found = [_name(each) for each in component.get("licenses", [])]
        license_ = " AND ".join(dict.fromkeys(filter(None, found))) or FILES.get(component["name"], "")
        yield component["name"], component["version"], license_


def is_allowed(license_: str) -> bool:
    """Return whether all parts of an SPDX expression are allowed, or one of its alternatives."""
    words = [word for word in re.split(r"[\s()]+", license_) if word not in {"", "AND", "WITH"}]
    choose = any if "OR" in words and " AND " not in license_ else all
    return bool(words) and choose(word in ALLOWED for word in words if word != "OR")


def _name(entry: dict[str, Any]) -> str:
    about = entry.get("license", entry)
    name = str(about.get("expression") or about.get("id") or about.get("name") or "").rpartition(":: ")[2]
    return NAMES.get(name, name)
