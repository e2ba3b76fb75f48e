"""BFCL's official checker of calls (bfcl-eval, `ast_checker`), as it is in the wheel.

Read on its input, a JSON object a line, are `task`, a task's identifier, `category`, and `calls`, each `{name:
arguments}`; printed is for each line whether the checker takes them, or null where it fails on them.

The checker's one heavy import, the table of all models, is replaced by what the checker reads of it: that dots in a
tool's name were made underscores.
"""

import json
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

_MODELS: Any = ModuleType("bfcl_eval.constants.model_config")
_MODELS.MODEL_CONFIG_MAPPING = defaultdict(lambda: SimpleNamespace(underscore_to_dot=True))
sys.modules["bfcl_eval.constants.model_config"] = _MODELS

from bfcl_eval.constants.enums import Language  # noqa: E402 - see above
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker  # noqa: E402 - see above


def data_folder() -> Path:
    package = find_spec("bfcl_eval")
    assert package is not None
    assert package.origin is not None
    return Path(package.origin).parent / "data"


def rows(file: Path) -> dict[str, Any]:
    return {row["id"]: row for row in map(json.loads, filter(None, file.read_text("utf-8").splitlines()))}


def check(functions: list[Any], calls: list[Any], answers: list[Any], category: str) -> bool | None:
    try:
        return bool(ast_checker(functions, calls, answers, Language.PYTHON, category, "any")["valid"])
    except Exception:  # noqa: BLE001 - on what it does not expect
        return None


def main() -> None:
    if "--folder" in sys.argv:
        print(data_folder())
        return
    files: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        category = asked["category"]
        if category not in files:
            name, folder = f"BFCL_v4_{category}.json", data_folder()
            files[category] = rows(folder / name), rows(folder / "possible_answer" / name)
        questions, answers = files[category]
        functions = questions[asked["task"]]["function"]
        print(json.dumps(check(functions, asked["calls"], answers[asked["task"]]["ground_truth"], category)))


if __name__ == "__main__":
    main()
