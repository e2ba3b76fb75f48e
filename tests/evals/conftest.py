"""The evals are scripts of the repository, not of the wheel."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
