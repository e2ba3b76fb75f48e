from crm.customers import add, connect, search


def test_a_quote_is_a_character():
    database = connect()
    add(database, "Flann O'Brien", "Dublin")
    add(database, "Ada Lovelace", "London")
    assert search(database, "O'Br") == [(1, "Flann O'Brien")]
    assert search(database, "x' OR '1'='1' --") == []
    database.close()
