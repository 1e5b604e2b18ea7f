"""What the scenarios of the residue begin with: one small file of lines, more that is said, a talk with a call."""

from __future__ import annotations

import msgspec

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.laws.stored import Stored
from clew_format_tiny.records import frame_document
from toysessions import bot, row, session_of, user

HI, HELLO = user("hi"), bot("hello")
FILE = session_of(HI, row("usage"), HELLO, row("end"))
MORE = (make_user("more"), make_assistant("and more"))
TALK = (
    make_user("list the files"),
    make_assistant("Looking.", make_call("c1", "sh", '{"n":1.0,"cmd":"ls"}')),
    make_result("c1", "a.txt\nb.txt"),
    make_assistant("Two files."),
)


def compacted(stored: Stored) -> Stored:
    """Returns a session of the third format after its history was replaced by a summary there."""
    said = b',{"who":"cut","say":"We greeted each other."},{"who":"bot","say":"So?"}'
    closed = frame_document(stored.data).closed
    return msgspec.structs.replace(stored, data=stored.data[:closed] + said + stored.data[closed:])
