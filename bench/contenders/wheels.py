"""Keeps the parsers that are in the wheels of vLLM and SGLang, in the environment of the interpreter that runs this.

usage: .venv-parsers/bin/python -m bench.contenders.wheels
"""

import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

WHEELS = Path(__file__).resolve().parents[1] / "wheels.txt"
KEPT = (
    "sglang/srt/environ.py",
    "sglang/srt/function_call/",
    "sglang/srt/parser/",
    "vllm/entrypoints/openai/parser/",
    "vllm/parser/",
    "vllm/reasoning/",
    "vllm/tool_parsers/",
    "vllm/utils/collection_utils.py",
)


def download(folder: str) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    what = ["--no-deps", "--only-binary", ":all:", "--dest", folder, "--requirement", str(WHEELS)]
    if subprocess.run([*pip, *what], check=False).returncode:
        sys.exit("the wheels of vLLM and SGLang cannot be had")


def main() -> None:
    with TemporaryDirectory(dir=sys.prefix) as folder:
        download(folder)
        for wheel in Path(folder).glob("*.whl"):
            with ZipFile(wheel) as archive:
                kept = [name for name in archive.namelist() if name.startswith(KEPT) and name.endswith(".py")]
                archive.extractall(sysconfig.get_path("purelib"), kept)


if __name__ == "__main__":
    main()
