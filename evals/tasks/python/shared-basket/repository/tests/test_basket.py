import pytest

from shop.basket import Basket


def test_total():
    basket = Basket("ada", items=[])
    basket.add("tea", 350)
    basket.add("tea", 350, 2)
    basket.add("cup", 900)
    assert basket.total() == 1950


def test_remove():
    basket = Basket("ada", items=[{"title": "tea", "price": 350, "quantity": 1}])
    basket.remove("tea")
    assert basket.items == []


def test_baskets_are_apart():
    Basket("ada").add("tea", 350)
    assert Basket("grace").items == []


def test_less_than_one():
    with pytest.raises(ValueError):
        Basket("ada", items=[]).add("tea", 350, 0)
