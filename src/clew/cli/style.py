"""How things look on this terminal: colours by role, signs, and what the encoding can say.

A `Look` is a value: rendering takes one and gives lines, so that every width, with colour and without, is tested
without a terminal. Colour only repeats what a word or a sign says already. Does not write anything.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from clew.cli.safe import RESET, Sgr, is_utf8, make_safe

Role: TypeAlias = Literal[
    "you", "agent", "tool", "ok", "warn", "error", "live", "kept", "muted", "heading", "added", "removed", ""
]

SGR: Final[dict[str, str]] = {
    "you": "34",
    "agent": "35",
    "tool": "33",
    "ok": "32",
    "warn": "33",
    "error": "31",
    "live": "36",
    "kept": "33",
    "muted": "2",
    "heading": "1",
    "added": "32",
    "removed": "31",
}
"""One of the sixteen ANSI colours, or a weight, for each role."""

ASCII: Final = str.maketrans(
    {
        "─": "-",
        "┄": ".",
        "│": "|",
        "▸": ">",
        "✗": "x",
        "→": ">",
        "…": "~",
        "·": "-",
        "●": "*",
        "◇": "<>",
        "⟨": "<",
        "⟩": ">",
    }
)
"""What stands for our own signs where the encoding is not UTF-8; all but one keep their width."""


class Look(msgspec.Struct, frozen=True):
    """What the output can show: cells across (0 where nothing is cut), colour, encoding, and if it is a terminal."""

    width: int = 80
    color: bool = False
    encoding: str = "utf-8"
    terminal: bool = False

    @property
    def utf8(self) -> bool:
        """Tells whether every sign can be shown."""
        return is_utf8(self.encoding)

    def paint(self, role: Role, text: str) -> str:
        """Returns our own text, already safe, in the colour of a role."""
        code = SGR.get(role)
        return f"\x1b[{code}m{text}{RESET}" if self.color and code and text else text

    def safe(self, text: str, *, line: bool = False) -> str:
        """Returns a session's text, made safe for this output."""
        return make_safe(text, line=line, encoding=self.encoding)

    def session(self, agent: str, session_id: str) -> str:
        """Returns how a session is named: its agent, painted, and its id."""
        return f"{self.paint('agent', self.safe(agent, line=True))} {self.safe(session_id, line=True)}"

    def result(self, text: str) -> str:
        """Returns a tool result's text, made safe; its colours stay where this output has colour."""
        sgr: Sgr = "keep" if self.color else "drop"
        return make_safe(text, sgr=sgr, encoding=self.encoding)

    def own(self, text: str) -> str:
        """Returns our own text with signs that this output can show."""
        return text if self.utf8 else text.translate(ASCII)
