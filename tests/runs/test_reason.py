"""Reasons are safe at the door."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.runs.reason import MAX_CHARACTERS, sanitise

SECRET = "zq9-Hidden_Value77"
SHAPES = [
    "Authorization: Bearer {}",
    "authorization: basic {}",
    'Bearer "{} with blanks {}"',
    "api_key={}",
    "OPENAI_API_KEY={} is wrong",
    'the body {{"access_token": "{}", "x": 1}} was refused',
    '{{\\"apiKey\\": \\"{}\\"}}',
    "password='{} and more {}'",
    "cannot reach https://user:{}@host.example/path",
    "cannot reach https://{}@host.example",
    "GET /v1?key={}&x=1",
    "x-api-key: {}",
    "client_secret => {}",
    "Cookie: {}",
    "token:{}",
]


@pytest.mark.parametrize("shape", SHAPES)
def test_scenario_114_a_secret_is_redacted(shape: str) -> None:
    safe = sanitise("before " + shape.replace("{}", SECRET).replace("{{", "{").replace("}}", "}"))
    assert SECRET not in safe
    assert "[REDACTED]" in safe
    assert safe.startswith("before ")


@pytest.mark.parametrize("split", ["\x00", "\x1b", "\x7f", "\u200b", "\u202e", "\ufeff", "\x9b"])
def test_a_control_character_inside_a_token_does_not_save_its_tail(split: str) -> None:
    safe = sanitise(f"api_key={SECRET[:6]}{split}{SECRET[6:]}")
    assert SECRET[6:] not in safe
    assert safe == "api_key=[REDACTED]"


def test_known_shapes_need_no_name() -> None:
    for token in ("sk-ant-api03-abcdefghijk", "ghp_" + "a" * 36, "AKIA" + "B" * 16, "xoxb-12345678-abc"):
        assert token not in sanitise(f"refused {token} there")


def test_plain_sentences_stay_as_they_are() -> None:
    for text in ("HTTP 429: slow down", "item a/b.py failed at line 12", "no merge base of main and topic"):
        assert sanitise(text) == text


@settings(max_examples=100)
@given(st.text(max_size=700))
def test_any_text_becomes_one_valid_short_line(text: str) -> None:
    safe = sanitise(text)
    safe.encode("utf-8")
    assert "\n" not in safe
    assert len(safe) <= MAX_CHARACTERS + 1
    assert all(ord(char) >= 32 for char in safe)


@settings(max_examples=60)
@given(st.sampled_from(SHAPES), st.text(max_size=40), st.text(max_size=700))
def test_no_planted_secret_survives_whatever_stands_around_it(shape: str, before: str, after: str) -> None:
    planted = shape.replace("{}", SECRET).replace("{{", "{").replace("}}", "}")
    assert SECRET not in sanitise(f"{before} {planted} {after}")


def test_lone_surrogates_and_line_ends() -> None:
    assert sanitise("a\ud800b") == "a\ufffdb"
    assert sanitise("a\r\nb\u2028c\td") == "a b c d"
    assert sanitise("x" * 600) == "x" * 500 + "…"
