import re
import string
from pathlib import Path

import pytest

from clew.cli import words
from clew.cli.style import Look

SOURCE = Path(words.__file__).parent
UTF8, ASCII, PAINTED = Look(), Look(encoding="ascii"), Look(color=True)


@pytest.mark.parametrize("state", ["idle", "live", "empty", "archived", "damaged", "unreadable", "gone"])
def test_every_state_of_a_list_has_words(state):
    assert state in words.WORDS


def test_every_word_has_sign_and_ascii_sign_and_short_forms_are_short():
    for state, word in words.WORDS.items():
        if state != "idle":
            assert word.sign, state
            assert word.ascii.isascii(), state
            assert word.role, state
            assert len(word.short) < 30, state


def test_short_forms():
    assert words.short("gone", UTF8) == "◇ kept here"
    assert words.short("gone", ASCII) == "<> kept here"
    assert words.short("live", PAINTED) == "\x1b[36m● live\x1b[0m"
    assert words.short("idle", UTF8) == ""
    assert words.short("diverged", UTF8, at=42) == "Y diverged at 42"


def test_long_forms_have_real_counts():
    text = words.long("returned", UTF8, restored="41 messages", rendered="14", source="codex 01a2")
    assert text == "= 41 messages home byte for byte, 14 written from codex 01a2"


def test_a_count_without_its_value_is_a_mistake():
    with pytest.raises(KeyError):
        words.long("returned", UTF8)


def test_an_unknown_state_is_shown_as_it_is():
    assert words.short("strange", UTF8) == "· strange"


def test_counts():
    assert words.count(1, "message") == "1 message"
    assert words.count(1204, "session") == "1,204 sessions"
    assert words.amount(1, "images") == "1 image"
    assert words.amount(12, "reasoning blocks") == "12 reasoning blocks"


def test_templates_name_only_fields():
    for word in words.WORDS.values():
        for template in (word.short, word.long):
            assert all(name is None or name.isidentifier() for _, name, _, _ in string.Formatter().parse(template))


def _texts():
    for path in sorted(SOURCE.glob("*.py")):
        text = path.read_text("utf-8")
        if path.name == "words.py":
            text = re.sub(r"FORBIDDEN: Final = .*", "", text)
        yield path.name, text


@pytest.mark.parametrize("pattern", words.FORBIDDEN)
def test_no_face_promises_what_nobody_can_promise(pattern):
    for name, text in _texts():
        for line in text.splitlines():
            match = re.search(pattern, line, re.IGNORECASE)
            # `damage.lost` is the name of a field of the reader's report, not a word that is shown.
            assert not match or ".lost" in line, f"{name}: {line.strip()}"
