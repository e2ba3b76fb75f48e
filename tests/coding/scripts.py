"""What the model says in each phase of a job that mends `add`; after a kill, by what was done."""

FILE = ("file", {"path": "calc.py"})
EDIT = ("file", {"action": "replace", "path": "calc.py", "old": "a ^ b", "new": "a + b"})
LOST = ("file", {"path": "lost.py"})
TRACE = ("bash", {"command": "echo once >> trace.txt"})
PHASED = {
    "reproduce": [("test", {}), "test_add fails."],
    "investigate": [FILE, "It subtracts."],
    "isolate": [FILE, "Line 2."],
    "fix": [TRACE, EDIT, "Changed calc.py."],
    "verify": [("git", {"action": "commit", "message": "Mend"}), "It passes."],
    "commit": ["Mend add\n\nIt subtracted."],
}
WRONG = "calc.py\n```python\ndef add(a, b):\n    return a | b\n```\nnew.py\n```python\nx = 1\n```"
RIGHT = "calc.py\n```python\ndef add(a, b):\n    return a + b\n```\n"
SHORT = {"": [WRONG, RIGHT]}
