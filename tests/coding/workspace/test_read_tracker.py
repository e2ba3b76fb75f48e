from __future__ import annotations

from callboard.coding.workspace.read_tracker import Seen


def test_what_was_shown_is_seen():
    seen = Seen()
    assert seen.sight("f", 1, ["a"]) == "unseen"
    seen.show("f", 3, ["a", "b", "c"])
    assert seen.sight("f", 3, ["a", "b", "c"]) == "seen"
    assert seen.sight("f", 4, ["b"]) == "seen"
    assert seen.sight("f", 4, ["B"]) == "changed"
    assert seen.sight("f", 2, ["x", "a"]) == "unseen"
    assert seen.sight("g", 3, ["a"]) == "unseen"
    assert seen.sight("f", 99, []) == "seen"


def test_what_was_shown_last_counts():
    seen = Seen()
    seen.show("f", 1, ["a", "b"])
    seen.show("f", 2, ["B"])
    assert seen.sight("f", 1, ["a", "B"]) == "seen"


def test_what_moved_is_forgotten():
    seen = Seen()
    seen.show("f", 1, ["a", "b", "c"])
    seen.forget("f", 2)
    assert [seen.sight("f", line, [text]) for line, text in ((1, "a"), (2, "b"), (3, "c"))] == [
        "seen",
        "unseen",
        "unseen",
    ]
    seen.forget("f")
    assert seen.sight("f", 1, ["a"]) == "unseen"
    seen.forget("nothing")


def test_a_copy_goes_its_own_way():
    seen = Seen()
    seen.show("f", 1, ["a"])
    copied = seen.copy()
    copied.show("f", 2, ["b"])
    seen.forget("f")
    assert (copied.sight("f", 1, ["a", "b"]), seen.sight("f", 1, ["a"])) == ("seen", "unseen")
