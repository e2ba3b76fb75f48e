"""The diffs of changed files."""

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from callboard.coding.workspace.changed_files import ChangedFile, count_changed_lines, diff_of


@table(
    ("before", "after", "counts"),
    [
        (b"-- a comment of SQL\n", b"", (0, 1)),
        (b"", b"++ a\n++ b\n", (2, 0)),
        (None, b"a\n", (1, 0)),
        (b"a\n", None, (0, 1)),
        (None, b"", (0, 0)),
    ],
)
def test_lines_are_counted_whatever_they_begin_with(before, after, counts):
    change = ChangedFile("a.sql", before, after)
    assert count_changed_lines(diff_of([change])) == counts
    assert count_changed_lines(diff_of([change, change])) == tuple(2 * count for count in counts)


LINES = st.lists(st.sampled_from(["same", "-- a", "--- a", "+ b", "@@ c", ""]), max_size=8)


@given(LINES, LINES)
def test_the_counts_agree_with_the_lengths_of_the_files(before, after):
    old, new = ("".join([f"{line}\n" for line in lines]).encode() for lines in (before, after))
    added, removed = count_changed_lines(diff_of([ChangedFile("a", old, new)]))
    assert added - removed == len(after) - len(before)
