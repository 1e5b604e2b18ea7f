"""The address of a store on a server: what the driver gets, and what people see."""

from __future__ import annotations

import pytest

from clew.errors import UsageError
from clew.store.address import read_address


@pytest.mark.parametrize(
    ("url", "conninfo", "shown", "schema"),
    [
        ("postgresql://h/db", "postgresql://h/db", "postgresql://h/db", "clew"),
        (
            "postgres://u:p%40w@h:5433/db?schema=mine",
            "postgres://u:p%40w@h:5433/db",
            "postgresql://u@h:5433/db",
            "mine",
        ),
        (
            "postgresql://u@h1:1,h2:2/db?sslmode=require&schema=a_1&options=-c%20x%3D1",
            "postgresql://u@h1:1,h2:2/db?sslmode=require&options=-c%20x%3D1",
            "postgresql://u@h1:1,h2:2/db",
            "a_1",
        ),
        ("postgresql:///db?host=/run/pg", "postgresql:///db?host=%2Frun%2Fpg", "postgresql:///run/pg/db", "clew"),
        (
            "postgresql://u@[::1]:5/db?password=s3cret",
            "postgresql://u@[::1]:5/db?password=s3cret",
            "postgresql://u@[::1]:5/db",
            "clew",
        ),
    ],
)
def test_an_address_is_taken_apart(url: str, conninfo: str, shown: str, schema: str):
    address = read_address(url)
    assert (address.conninfo, address.shown, address.schema) == (conninfo, shown, schema)
    assert all(one not in address.scrub(f"({one})") for one in address.secrets)


def test_the_driver_understands_what_it_gets():
    psycopg = pytest.importorskip("psycopg")
    address = read_address("postgresql://u:a%20b%2Bc@h:1/db?schema=s&application_name=x%20y&connect_timeout=3")
    assert psycopg.conninfo.conninfo_to_dict(address.conninfo) == {
        "user": "u",
        "password": "a b+c",
        "host": "h",
        "port": "1",
        "dbname": "db",
        "application_name": "x y",
        "connect_timeout": "3",
    }
    assert address.given == {"application_name", "connect_timeout"}
    assert address.scrub("a b+c, a%20b%2Bc") == "***, ***"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mysql://u:geheim@h/db",
        "sqlite:///geheim",
        "geheim",
        "postgresql://u:geheim@[h/db",
        "postgresql://u:geheim@h/db?schema=Mine",
        "postgresql://u:geheim@h/db?schema=a;b",
        "postgresql://u:geheim@h/db?schema=",
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(url: str):
    with pytest.raises(UsageError) as caught:
        read_address(url)
    assert caught.value.hint
    assert "geheim" not in str(caught.value) + caught.value.hint


def test_the_name_of_a_store_is_not_its_secret():
    keys = [
        read_address(url).key
        for url in (
            "postgresql://u:one@h/db",
            "postgresql://u:two@h/db",
            "postgresql://u@h/db?sslmode=require",
            "postgresql://u@h/db?schema=other",
            "postgresql://u@h/db2",
        )
    ]
    assert keys[0] == keys[1] == keys[2]
    assert len(set(keys)) == 3
