import pytest

from crm.customers import add, connect, of_city


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
