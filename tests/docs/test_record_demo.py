import runpy
import subprocess
from pathlib import Path

PRINTED = """\
qwen2.5-coder-0.5b: downloading 491 MB once
local:qwen2.5-coder-0.5b: context 32,768 tokens, cache 0.4 GB
local:qwen2.5-coder-0.5b: loading
waiting for the model: 20 s
-> multiply(a=2, b=3)
<- 6
waiting for the model: 20 s
It is 6.
"""


def test_the_picture_has_no_lines_about_download_loading_and_waiting(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, PRINTED))
    script = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "record_demo.py"))
    assert script["ask_callboard"]() == "-> multiply(a=2, b=3)\n<- 6\nIt is 6.\n"
