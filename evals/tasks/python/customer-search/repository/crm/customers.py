"""The customers, in SQLite."""

import sqlite3

TABLE = "CREATE TABLE IF NOT EXISTS customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL)"


def connect(path=":memory:"):
    """The database, which is made where it is not there."""
    database = sqlite3.connect(path)
    database.row_factory = sqlite3.Row
    database.execute(TABLE)
    return database


def add(database, name, city):
    """The id of a new customer."""
    with database:
        return database.execute("INSERT INTO customers (name, city) VALUES (?, ?)", (name, city)).lastrowid


def of_city(database, city):
    """The names of a city's customers."""
    rows = database.execute("SELECT name FROM customers WHERE city = ? ORDER BY name", (city,))
    return [row["name"] for row in rows]
