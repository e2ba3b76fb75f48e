"""The ensembles of the coding tools, as files describe them: what the entry points of `callboard.ensembles` name."""

from __future__ import annotations

from pathlib import Path

CODING = Path(__file__).with_name("coding.toml")
CODING_SINGLE = Path(__file__).with_name("coding_single.toml")
