"""A cache of the entries that were used last."""

from collections import OrderedDict


class RecentCache:
    """Keeps up to `size` entries; the one that was used least recently goes first."""

    def __init__(self, size):
        if size < 1:
            raise ValueError("a cache holds at least one entry")
        self.size = size
        self._entries = OrderedDict()

    def __len__(self):
        return len(self._entries)

    def __contains__(self, key):
        return key in self._entries

    def get(self, key, default=None):
        """The value of a key, which counts as a use of it."""
        if key not in self._entries:
            return default
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key, value):
        """Keep a value, in place of the one that the key had."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self.size:
            self._entries.popitem(last=False)
