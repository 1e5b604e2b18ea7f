"""The border: makes text that came from a session safe to print on a terminal.

Promises that no ESC, no other control character, no C1 byte and no invisible or direction-changing character of a
session leaves clew as itself: they become visible signs. The only control sequences that ever pass are SGR colours
of tool results, and those are parsed, checked against a list and written anew. Everything printed from a session
goes through `make_safe`: texts, titles, folders, ids, file names and the messages of errors that quote them.
Does not measure or cut text, and does not touch what is written to files.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, TypeAlias, cast

import msgspec

from clew.conversation.text import mend_surrogates

Sgr: TypeAlias = Literal["show", "keep", "drop"]
"""What becomes of SGR sequences: shown as text, kept when they are on the list, or taken out."""

RESET = "\x1b[0m"

# What is invisible, moves the cursor or turns the direction of text. C0 but tab and line feed, DEL, C1; soft hyphen
# and fillers; bidi controls and isolates; zero-width and line separators; annotation and tag characters; surrogates.
_INVISIBLE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\ud800-\udfff"
)
# Joiners are needed inside emoji and several scripts; beside ASCII, or in runs, they only hide something.
_JOINERS = "[\u200c\u200d]{2,}|(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])"
_HOSTILE = re.compile(f"[{_INVISIBLE}]|{_JOINERS}")
_PLAIN = re.compile("[\t\n\x20-\x7e]*\\Z")
_SGR = re.compile("\x1b\\[([0-9;:]{0,64})m")
_JSON_HOSTILE = re.compile(f"[{_INVISIBLE}\u200c\u200d]")


def make_safe(text: str, *, line: bool = False, sgr: Sgr = "show", encoding: str = "utf-8") -> str:
    """Returns `text` without anything that acts on a terminal; line feeds and tabs stay, CR LF is a line feed.

    Control characters become their pictures (`␛`), every other hidden one its number (`⟨202E⟩`); where `encoding`
    is not UTF-8 the signs are ASCII (`^[`, `<202E>`) and what it cannot say is written as an escape. With `line`
    the result is one line: runs of blanks, tabs and line ends are one blank. With `sgr` "keep" the allowed colours
    stay, each line closed by a reset.
    """
    if text.isascii() and text.isprintable():  # nothing to do for most texts of a list
        return text if not line or ("  " not in text and text.strip() == text) else " ".join(text.split())
    if sgr != "show" and "\x1b" in text:
        text = _restyle(text, keep=sgr == "keep", encoding=encoding)
    else:
        text = _neutralise(text, encoding)
    return " ".join(text.split()) if line else text


def write_json(value: object) -> str:
    """Returns a value as one line of JSON that is valid UTF-8 and acts on no terminal.

    What JSON does not know is written as text; a lone surrogate (a file name of bytes that are no UTF-8) is U+FFFD.
    """
    try:
        data = msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:
        data = msgspec.json.encode(_mend(msgspec.to_builtins(value, enc_hook=str)))
    return escape_json(data.decode())


def _mend(value: object) -> object:
    if isinstance(value, str):
        return mend_surrogates(value)
    if isinstance(value, dict):
        return {_mend(key): _mend(item) for key, item in cast(dict[object, object], value).items()}
    if isinstance(value, list | tuple):
        return [_mend(item) for item in cast(list[object], value)]
    return value


def escape_json(text: str) -> str:
    """Returns a JSON text with every hostile character inside its strings written as an escape.

    Encoders escape C0 but leave DEL, C1 and direction controls as they are; the value stays the same.
    """
    return text if text.isascii() and "\x7f" not in text else _JSON_HOSTILE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


@cache
def is_utf8(encoding: str) -> bool:
    """Tells whether an encoding's name stands for UTF-8."""
    return encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig", "cp65001")


def _neutralise(text: str, encoding: str) -> str:
    if _PLAIN.match(text):
        return text
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if is_utf8(encoding):
        return _HOSTILE.sub(_picture, text)
    text = _HOSTILE.sub(_ascii_picture, text)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _picture(match: re.Match[str]) -> str:
    return "".join(_picture_of(ord(char)) for char in match.group())


def _picture_of(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"⟨{code:04X}⟩"


def _ascii_picture(match: re.Match[str]) -> str:
    return "".join(_ascii_picture_of(ord(char)) for char in match.group())


def _ascii_picture_of(code: int) -> str:
    if code < 0x20 or code == 0x7F:
        return "^" + chr(code ^ 0x40)
    return "?" if 0xD800 <= code <= 0xDFFF else f"<{code:04X}>"


_FLAGS = {1: "weight", 2: "weight", 3: "slant", 4: "under", 7: "reverse", 9: "strike"}
_CLEARS = {22: "weight", 23: "slant", 24: "under", 27: "reverse", 29: "strike", 39: "ink", 49: "paper"}
_COLOURS = {
    **dict.fromkeys((*range(30, 38), *range(90, 98)), "ink"),
    **dict.fromkeys((*range(40, 48), *range(100, 108)), "paper"),
}


def _restyle(text: str, *, keep: bool, encoding: str) -> str:
    """Writes the text anew with our own SGR sequences for the colours that are on the list."""
    out: list[str] = []
    style: dict[str, str] = {}
    at = 0
    for match in _SGR.finditer(text):
        _put(out, _neutralise(text[at : match.start()], encoding), style)
        if keep:
            _change(style, match.group(1))
        at = match.end()
    _put(out, _neutralise(text[at:], encoding), style)
    return "".join(out)


def _put(out: list[str], text: str, style: dict[str, str]) -> None:
    if not text:
        return
    if not style:
        out.append(text)
        return
    opening = f"\x1b[{';'.join(style.values())}m"
    for number, piece in enumerate(text.split("\n")):
        if number:
            out.append("\n")
        if piece:
            out.append(f"{opening}{piece}{RESET}")


def _change(style: dict[str, str], parameters: str) -> None:
    """Applies one SGR sequence to the style; what is not on the list changes nothing (blink, conceal, fonts)."""
    codes = [int(code[:4]) if code else 0 for code in parameters.replace(":", ";").split(";")]
    while codes:
        code = codes.pop(0)
        if code == 0:
            style.clear()
        elif code in (38, 48):
            colour = _take_colour(codes)
            if colour:
                style["ink" if code == 38 else "paper"] = f"{code};{colour}"
        elif code in _FLAGS:
            style[_FLAGS[code]] = str(code)
        elif code in _CLEARS:
            style.pop(_CLEARS[code], None)
        elif code in _COLOURS:
            style[_COLOURS[code]] = str(code)


def _take_colour(codes: list[int]) -> str:
    """Takes the parameters of an extended colour: 5 and an index, or 2 and three bytes."""
    need = {5: 1, 2: 3}.get(codes[0]) if codes else None
    if need is None or len(codes) <= need or any(code > 255 for code in codes[1 : need + 1]):
        codes.clear()
        return ""
    taken = codes[: need + 1]
    del codes[: need + 1]
    return ";".join(map(str, taken))
