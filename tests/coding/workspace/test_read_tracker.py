from __future__ import annotations

from callboard.coding.workspace.workspace import ReadTracker


def test_what_was_shown_is_seen():
    seen = ReadTracker()
    assert seen.compare("f", 1, ["a"]) == "unseen"
    seen.record("f", 3, ["a", "b", "c"])
    assert seen.compare("f", 3, ["a", "b", "c"]) == "seen"
    assert seen.compare("f", 4, ["b"]) == "seen"
    assert seen.compare("f", 4, ["B"]) == "changed"
    assert seen.compare("f", 2, ["x", "a"]) == "unseen"
    assert seen.compare("g", 3, ["a"]) == "unseen"
    assert seen.compare("f", 99, []) == "seen"


def test_what_was_shown_last_counts():
    seen = ReadTracker()
    seen.record("f", 1, ["a", "b"])
    seen.record("f", 2, ["B"])
    assert seen.compare("f", 1, ["a", "B"]) == "seen"


def test_what_moved_is_forgotten():
    seen = ReadTracker()
    seen.record("f", 1, ["a", "b", "c"])
    seen.forget("f", 2)
    assert [seen.compare("f", line, [text]) for line, text in ((1, "a"), (2, "b"), (3, "c"))] == [
        "seen",
        "unseen",
        "unseen",
    ]
    seen.forget("f")
    assert seen.compare("f", 1, ["a"]) == "unseen"
    seen.forget("nothing")


def test_a_copy_goes_its_own_way():
    seen = ReadTracker()
    seen.record("f", 1, ["a"])
    copied = seen.copy()
    copied.record("f", 2, ["b"])
    seen.forget("f")
    assert (copied.compare("f", 1, ["a", "b"]), seen.compare("f", 1, ["a"])) == ("seen", "unseen")
