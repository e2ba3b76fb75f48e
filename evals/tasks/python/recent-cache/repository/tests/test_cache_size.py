import pytest

from store.cache import RecentCache


def test_a_cache_of_nothing():
    with pytest.raises(ValueError):
        RecentCache(0)
