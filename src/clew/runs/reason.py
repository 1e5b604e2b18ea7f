"""Reasons made safe: the text of a failure before it may enter a manifest, a log or a report.

Promises valid UTF-8 on one line, at most 500 characters and an ellipsis, without control characters and without the
credentials whose shapes are known here. It is a floor: whoever makes a reason leaves secrets out too. Absolute paths
are not covered.
"""

from __future__ import annotations

import re
import unicodedata

MAX_CHARACTERS = 500
REDACTED = "[REDACTED]"

_BLANKS = "\t\n\r\x0b\x0c\x85\u2028\u2029"

_URL_CREDENTIALS = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s\"'<>]*@")
_SCHEME_VALUE = re.compile(r"""(?i)\b(bearer|basic)(\s+)("[^"]*"?|'[^']*'?|\S+)""")
_NAME = (
    r"[\w.-]*(?:api[_-]?key|access[_-]?key|private[_-]?key|secret|token|passw(?:or)?d|passphrase|passcode|pwd"
    r"|credential|authori[sz]ation|cookie|signature|x-api)[\w.-]*|(?:auth|sig|key)"
)
_PAIR = re.compile(
    rf"""(?ix)
    (?<![\w.-]) (?P<name>{_NAME}) (?P<close>\\?["']?)
    (?P<sign>\s*(?:=>|:=|[=:])\s*)
    (?P<value> \\?"(?:[^"\\]|\\.)*"? | \\?'(?:[^'\\]|\\.)*'? | \S+ )
    """
)
_SHAPES = re.compile(
    r"""(?x)
    \b(?: sk-[A-Za-z0-9_-]{8,} | gh[oprsu]_[A-Za-z0-9]{16,} | github_pat_\w{16,} | glpat-[\w-]{12,}
      | xox[abprs]-[\w-]{8,} | A(?:KIA|SIA)[0-9A-Z]{16} | AIza[\w-]{30,}
      | eyJ[\w-]{6,}\.[\w-]{6,}\.[\w-]* )
    """
)


def make_plain(text: str) -> str:
    """Returns `text` as valid Unicode on one line: line ends and tabs are blanks, other controls are gone.

    Formatting characters (joiners, direction marks) go too: like controls they can split a word unseen.
    """
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if text.isascii() and text.isprintable():
        return text
    kept: list[str] = []
    for char in text:
        if char in _BLANKS:
            kept.append(" ")
        elif unicodedata.category(char) not in ("Cc", "Cf"):
            kept.append(char)
    return "".join(kept)


def redact(text: str) -> str:
    """Returns `text`, already plain, with the values of credentials replaced by a note."""
    text = _URL_CREDENTIALS.sub(rf"\1{REDACTED}@", text)
    text = _SCHEME_VALUE.sub(rf"\1\2{REDACTED}", text)
    text = _PAIR.sub(_replace_pair, text)
    return _SHAPES.sub(REDACTED, text)


def _replace_pair(match: re.Match[str]) -> str:
    return f"{match['name']}{match['close']}{match['sign']}{REDACTED}"


def sanitise(text: str) -> str:
    """Returns `text` fit for a manifest: plain first, then redacted, then cut to 500 characters.

    The order matters: a control character inside a token would hide its tail from the redaction.
    """
    safe = " ".join(redact(make_plain(text)).split())
    return safe if len(safe) <= MAX_CHARACTERS else safe[:MAX_CHARACTERS] + "…"
