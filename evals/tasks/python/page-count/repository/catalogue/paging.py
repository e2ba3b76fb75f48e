"""Pages of a list of results."""


def page_count(total, size):
    """How many pages of `size` entries `total` entries fill."""
    if size < 1:
        raise ValueError("a page has at least one entry")
    if total == 0:
        return 0
    return total // size + 1


def page(entries, number, size):
    """The entries on page `number`; the first page is 1."""
    if number < 1:
        raise ValueError("pages count from 1")
    start = (number - 1) * size
    return entries[start : start + size]


def links(total, size, current):
    """Numbers of the page before and the page after, None where there is none."""
    last = page_count(total, size)
    before = current - 1 if current > 1 else None
    after = current + 1 if current < last else None
    return before, after
