from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def use_one_processor():
    """Beside other tests llama.cpp's threads would wait for each other, spinning, for five times as long."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def test_a_real_model_calls_a_real_tool():
    """What `make run` does; the model is downloaded once, where the user's models are."""
    asked = subprocess.run(
        [
            *(sys.executable, "-c", "from callboard.cli import main; main()", "run"),
            *("--model", "local:qwen2.5-coder-0.5b", "--tools", "examples/first.py"),
            "What is 48213 times 9177?",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=use_one_processor,
    )
    assert asked.returncode == 0, asked.stderr
    assert "-> multiply(a=48213, b=9177)\n<- 442450701\n" in asked.stderr
    assert "442450701" in re.sub(r"[,. ]", "", asked.stdout)
