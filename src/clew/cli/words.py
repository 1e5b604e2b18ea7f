"""The one table of words for what became of a session: short, long, sign, and role.

Every face says the same thing with the same words; numbers are always real counts. What clew keeps is "kept here".
Fields are filled in by `short` and `long`; a count with its noun is made by `count`. Does not decide which state a
session is in.
"""

from __future__ import annotations

from typing import Final

import msgspec

from clew.cli.style import Look, Role


class Word(msgspec.Struct, frozen=True):
    """One state: its short form for lists, its long form as a template, its sign, the ASCII sign, its role."""

    short: str
    long: str
    sign: str
    ascii: str
    role: Role


WORDS: Final[dict[str, Word]] = {
    # what became of a session on its way
    "home": Word("home byte for byte", "home byte for byte: {records}, {files}, digest {digest}", "=", "=", "ok"),
    "returned": Word(
        "home + {rendered}", "{restored} home byte for byte, {rendered} written from {source}", "=", "=", "ok"
    ),
    "whole": Word("home byte for byte", "{agent} has all {messages}, byte for byte as they were", "=", "=", "ok"),
    "rebased": Word(
        "second session",
        "a second session: {restored} byte for byte but for its id, {rendered} written from {source}",
        "=",
        "=",
        "ok",
    ),
    "translated": Word("in {agent}", "{agent} has all {messages}", "→", ">", "ok"),
    "kept": Word("{what} kept here", "what {agent} cannot say: {what}: kept here", "→", ">", "ok"),
    "invented": Word(
        "{answers} invented",
        '{answers} invented for calls without a result: {agent} needs one, so it reads "outcome unknown". '
        "It disappears on the way home",
        "!",
        "!",
        "warn",
    ),
    "not_kept": Word("{count} not kept", "{what} not kept: they cannot come home", "!", "!", "error"),
    "diverged": Word(
        "diverged at {at}",
        "both went on after message {after}. Nothing was written. --new makes a second session",
        "Y",
        "Y",
        "warn",
    ),
    "captured": Word("kept", "kept here: capture {number}, {records}", "=", "=", "ok"),
    "unchanged": Word("unchanged", "kept here already: nothing new since capture {number}", "=", "=", "muted"),
    # states of a session in a list
    "idle": Word("", "", "", "", ""),
    "live": Word("live", "live: {detail}", "●", "*", "live"),
    "held": Word("held", "owned by {detail}", "●", "*", "live"),
    "unknown": Word("unknown", "{detail}: the agent's history does not show it yet. Not sent again", "?", "?", "warn"),
    "damaged": Word("damaged", "{detail}", "!", "!", "warn"),
    "unreadable": Word("unreadable", "{detail}", "!", "!", "error"),
    "gone": Word("kept here", "deleted by its agent; clew holds it. clew restore {id}", "◇", "<>", "kept"),
    "empty": Word("empty", "opened, nothing said", "·", "-", "muted"),
    "archived": Word("archived", "archived by its agent", "·", "-", "muted"),
    "folder_gone": Word("folder gone", "{folder} does not exist. clew move OLD NEW", "·", "-", "muted"),
    "indexing": Word("indexing {done} of {total}", "list is complete, search covers {percent} %", "…", "~", "muted"),
}
"""From a state's name to its words."""

FORBIDDEN: Final = (r"lossless", r"success", r"100 ?%", r"\blost\b")
"""What no face of clew says (patterns, any case): nobody can promise the first three, and what is kept is not gone."""


def word(state: str) -> Word:
    """Returns the words of a state; a state that is not in the table stands for itself."""
    known = WORDS.get(state)
    if known is not None:
        return known
    plain = state.replace("{", "{{").replace("}", "}}")
    return Word(plain, plain, "·", "-", "muted")


def short(state: str, look: Look, **fields: object) -> str:
    """Returns sign and short form of a state, painted; empty for a state that needs no word."""
    entry = word(state)
    text = _filled(entry.short, fields, look)
    sign = entry.sign if look.utf8 else entry.ascii
    return look.paint(entry.role, f"{sign} {text}") if text else ""


def long(state: str, look: Look, **fields: object) -> str:
    """Returns sign and long form of a state, with only the sign painted."""
    entry = word(state)
    sign = entry.sign if look.utf8 else entry.ascii
    return f"{look.paint(entry.role, sign)} {_filled(entry.long, fields, look)}"


def _filled(template: str, fields: dict[str, object], look: Look) -> str:
    """Fills a template in; what comes in may be a session's, and so may the name of an unknown state."""
    safe = {name: look.safe(str(value), line=True) for name, value in fields.items()}
    return look.safe(template.format_map(safe), line=True)


def count(number: int, noun: str, plural: str = "") -> str:
    """Returns a number with its noun: 1 message, 41 messages, 1,204 sessions."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def amount(number: int, plural: str) -> str:
    """Returns a number with a noun that is a plural already: 12 reasoning blocks, 1 image."""
    return f"{number:,} {plural[:-1] if number == 1 and plural.endswith('s') else plural}"
