from store.cache import RecentCache


def filled():
    cache = RecentCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    return cache


def test_it_holds_its_size():
    cache = filled()
    assert len(cache) == 2
    assert (cache.get("a"), cache.get("b")) == (1, 2)


def test_the_oldest_goes():
    cache = filled()
    cache.put("c", 3)
    assert "a" not in cache
    assert "b" in cache
    assert "c" in cache


def test_reading_is_use():
    cache = filled()
    cache.get("a")
    cache.put("c", 3)
    assert "a" in cache
    assert "b" not in cache


def test_a_value_is_replaced():
    cache = filled()
    cache.put("a", 10)
    assert cache.get("a") == 10
    assert len(cache) == 2


def test_default():
    assert filled().get("z") is None
    assert filled().get("z", 0) == 0
