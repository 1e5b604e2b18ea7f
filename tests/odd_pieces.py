"""Pieces of conversations that are hard to write, for the laws of one format at a time.

A format's samples name the texts and names that its own agent could mistake; what is odd for everybody stands here.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Image, Message, Part, Reasoning, Text
from clew.conversation.normal import normalise

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

ODD_ARGUMENTS = (
    "",
    "  ",
    "{}",
    '{"command":"ls"}',
    '{"b":1.0,"a":[1e2,null,true]}',
    '{"a":1,"a":2}',
    '{"clew_text":"x"}',
    '{"n":1e400}',
    '{"n":12345678901234567890123}',
    '{"s":"\\ud800"}',
    '{"s":"\ud800"}',
    '{"s":"\u2028"}',
    "[1,2]",
    '"text"',
    "null",
    "7",
    "NaN",
    "1e400",
    "*** Begin Patch\n*** End Patch",
    '{"cmd": not json',
    "const r = await tools.exec_command({});",
)

images = st.sampled_from(
    (
        Image("image/png", PNG),
        Image("image/jpeg", "AAAA"),
        Image("image/tiff", "AAAA"),
        Image("image/png", ""),
        Image("", "", "https://example.org/a.png"),
        Image("", "", "file:///a.png"),
    )
)
ids = st.sampled_from(("", "a", "b", "call_1", "toolu_01", "id|ä", "x" * 64, "x" * 65, "\ud800"))
times = st.none() | st.sampled_from((0, 1_796_067_394_000, -5, 10**18))
kinds = st.sampled_from(("", "summary", "interruption", "command", "notice"))


@st.composite
def pieces(draw: st.DrawFn, texts: Sequence[str], names: Sequence[str]) -> Message:
    """Draws one message of anybody's; `texts` and `names` of tools are those to choose from, beside random ones."""
    said: st.SearchStrategy[Part] = (st.sampled_from(texts) | st.text(max_size=12)).map(Text) | images
    arguments = st.sampled_from(ODD_ARGUMENTS) | st.text(max_size=6)
    match draw(st.sampled_from(("user", "agent", "assistant", "assistant", "result", "result"))):
        case "user":
            return make_user(*draw(st.lists(said, max_size=3)), time_ms=draw(times))
        case "agent":
            parts = draw(st.lists(said, max_size=2))
            return make_user(*parts, origin="agent", kind=draw(kinds), time_ms=draw(times))
        case "assistant":
            calls = st.builds(make_call, ids, st.sampled_from(names), arguments)
            told = st.lists(said | calls | st.builds(Reasoning, st.just("hm")), max_size=4)
            return make_assistant(*draw(told), model=draw(st.sampled_from(("", "m1", "m2"))), time_ms=draw(times))
        case _:
            failed = draw(st.none() | st.booleans())
            return make_result(draw(ids), *draw(st.lists(said, max_size=3)), is_error=failed, time_ms=draw(times))


def odd_conversations(
    texts: Sequence[str], names: Sequence[str], max_size: int
) -> st.SearchStrategy[tuple[Message, ...]]:
    """Gives conversations in normal form, made of whatever could be hard to write."""
    return st.lists(pieces(texts, names), max_size=max_size).map(lambda found: normalise(tuple(found)))
