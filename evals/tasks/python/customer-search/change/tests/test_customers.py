import pytest

from crm.customers import add, connect, of_city, search


@pytest.fixture
def database():
    made = connect()
    add(made, "Ada Lovelace", "London")
    add(made, "Grace Hopper", "New York")
    add(made, "Mary Somerville", "London")
    yield made
    made.close()


def test_of_city(database):
    assert of_city(database, "London") == ["Ada Lovelace", "Mary Somerville"]
    assert of_city(database, "Rome") == []


def test_search(database):
    assert search(database, "hop") == [(2, "Grace Hopper")]
    assert len(search(database, "a", limit=1)) == 1


def test_search_without_a_limit(database):
    with pytest.raises(ValueError):
        search(database, "a", limit=0)
