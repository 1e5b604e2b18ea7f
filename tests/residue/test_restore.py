"""Restoring: residue spec, section 8, and the worked examples 2, 4, 6 and 8 of section 10."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.conversation.canonical import first_key, keys_of
from clew.conversation.model import Message
from clew.conversation.source import Session, Source, Stream
from clew.errors import FormatError, UnreadableSource, UnwritableContent
from clew.ids import ChainKey
from clew.laws.stored import write_options
from clew.residue.choose import Candidate, Choice
from clew.residue.restore import (
    MAX_TRIES,
    Restored,
    RestoreReport,
    first_difference,
    lay_streams,
    restore_conversation,
)
from lineformat import FORMAT
from toysessions import (
    Piece,
    Shape,
    bot,
    call,
    candidate_of,
    out,
    pieces_of,
    read_lines,
    row,
    session_of,
    shapes_of,
    user,
)

HI, USAGE, HELLO, MORE, LAST = user("hi"), row("usage"), bot("aloha"), user("and more"), bot("last words")


class Bench:
    """A workshop that counts, and whose writer may be made to fail."""

    def __init__(self, *, spoil: str = "", refuse: FormatError | None = None, unreadable: bool = False) -> None:
        self.spoil, self.refuse, self.unreadable = spoil, refuse, unreadable
        self.splices = self.reads = 0

    def hold(self, path: str, mode: int, pieces: Iterable[bytes]) -> Stream:
        return Stream(path, b"".join(pieces), mode)

    def read(self, streams: tuple[Stream, ...]) -> Session:
        self.reads += 1
        if self.unreadable:
            raise UnreadableSource("cannot be read")
        return FORMAT.read(Source(streams))

    def splice(self, prefix: Session, messages: Sequence[Message]) -> tuple[Stream, ...]:
        self.splices += 1
        if self.refuse is not None:
            raise self.refuse
        assert FORMAT.splice is not None
        written = FORMAT.splice(prefix, messages, write_options(prefix.id))
        datas = [b"".join(map(bytes, file.chunks())) for file in written.files]
        if self.spoil:
            datas[-1] = datas[-1].replace(self.spoil.encode(), b"spoiled")
        return tuple(Stream(file.path, data) for file, data in zip(written.files, datas, strict=True))


def choice_of(candidate: Candidate, matched: int | None = None) -> Choice:
    count = len(candidate.keys) if matched is None else matched
    return Choice(candidate, count, ends=False)


def restore(
    messages: Sequence[Message],
    pieces: Sequence[Piece],
    bench: Bench | None = None,
    *,
    matched: int | None = None,
    shapes: Sequence[Shape] = (Shape("p1.lines", 99),),
) -> Restored | RestoreReport:
    choice = choice_of(candidate_of(pieces, capture=5, source="src"), matched)
    return restore_conversation(messages, tuple(keys_of(messages)), choice, shapes, bench or Bench())


def text(restored: Restored | RestoreReport) -> bytes:
    assert isinstance(restored, Restored)
    return b"".join(bytes(stream.data) for stream in restored.streams)


STORED = session_of(HI, USAGE, HELLO, USAGE)
SESSION = STORED.read()
LONGER = read_lines(HI, HELLO, MORE, LAST).messages


def test_the_whole_comes_back_without_writing_a_byte() -> None:  # example 1
    bench = Bench()
    restored = restore(SESSION.messages, pieces_of(SESSION), bench)
    assert text(restored) == STORED.data
    assert bench.splices == 0
    assert isinstance(restored, Restored)
    assert restored.report == RestoreReport("whole", 2, 0, "src", 5)
    assert restored.session.messages == SESSION.messages


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n \n"])
def test_however_the_file_ended_it_ends_again(end: bytes) -> None:  # scenarios 4 to 6
    stored = msgspec.structs.replace(STORED, data=STORED.data[:-1] + end)
    assert text(restore(SESSION.messages, pieces_of(stored.read()))) == stored.data


def test_later_turns_are_spliced_behind() -> None:  # example 2
    restored = restore(LONGER, pieces_of(SESSION))
    assert text(restored) == STORED.data + user("and more") + bot("last words")
    assert isinstance(restored, Restored)
    assert restored.report == RestoreReport("prefix", 2, 2, "src", 5)


def test_a_shorter_conversation_takes_its_beginning_without_the_end_mark() -> None:
    restored = restore(SESSION.messages[:1], pieces_of(SESSION), matched=1)
    assert text(restored) == row("meta", id="p1", cwd="/w") + HI + USAGE
    assert isinstance(restored, Restored)
    assert restored.report.mode == "prefix"


@pytest.mark.parametrize("how", ["digest wrong", "digest right", "gone"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_flipped_byte_costs_its_group_and_what_follows(how: str, number: int) -> None:  # example 4, scenario 18
    lines = (user("ah"), bot("ahoi"), user("and"), bot("all"), user("bye, all"))
    session = read_lines(*lines)
    pieces = pieces_of(session)
    bad = pieces[number].spoiled(digest=how == "digest right")
    if how == "gone":
        bad = msgspec.structs.replace(bad, data=None, lengths=())
    pieces[number] = bad
    restored = restore(session.messages, pieces)
    kept = b"".join(piece.data or b"" for piece in pieces[:number])
    assert text(restored).startswith(kept)
    assert isinstance(restored, Restored)
    assert tuple(keys_of(restored.session.messages)) == tuple(keys_of(session.messages))
    assert (restored.report.restored_messages, restored.report.rendered_messages) == (number, 5 - number)
    assert restored.report.retries == (1 if how == "digest right" else 0)
    assert restored.report.warnings == ()


def test_a_change_that_no_key_sees_with_its_digest_made_anew_is_not_noticed() -> None:  # example 4, by design
    session = read_lines(user("hi", at=1), HELLO)
    pieces = pieces_of(session)
    forged = (pieces[0].data or b"").replace(b'"at":1', b'"at":2')
    lines = forged.splitlines(keepends=True)
    pieces[0] = Piece.of(pieces[0].key, lines)
    assert b'"at":2' in text(restore(session.messages, pieces))


def test_the_first_group_forged_leaves_nothing() -> None:
    session = read_lines(user("ah"), HELLO)
    pieces = pieces_of(session)
    pieces[0] = Piece.of(pieces[0].key, [row("meta", id="p1"), user("oh")])
    outcome = restore(session.messages, pieces)
    assert outcome == RestoreReport("plain", 0, 2, reason="unsound")


def test_no_sound_segment_leaves_nothing() -> None:
    pieces = [piece.spoiled() for piece in pieces_of(SESSION)]
    assert restore(SESSION.messages, pieces) == RestoreReport("plain", 0, 2, reason="unsound")
    assert restore(SESSION.messages, [], matched=0) == RestoreReport("plain", 0, 2, reason="unsound")


def test_a_writer_that_spoils_what_it_renders_is_named() -> None:  # scenario 29
    bench = Bench(spoil="last words")
    outcome = restore(LONGER, pieces_of(SESSION), bench)
    assert isinstance(outcome, RestoreReport)
    assert (outcome.mode, outcome.reason) == ("plain", "unsound")
    assert outcome.warnings[0] == "group 4 did not survive the writer of its own format"
    assert bench.splices == 2  # the whole prefix, then one group of it


@pytest.mark.parametrize("bench", [Bench(refuse=UnwritableContent("no room")), Bench(unreadable=True)])
def test_a_format_that_refuses_makes_it_plain(bench: Bench) -> None:  # scenario 29
    outcome = restore(LONGER, pieces_of(SESSION), bench)
    assert isinstance(outcome, RestoreReport)
    assert (outcome.mode, outcome.restored_messages, outcome.rendered_messages) == ("plain", 0, 4)
    assert outcome.reason == "unreadable_target"
    assert outcome.warnings in (("no room",), ("cannot be read",))


def test_the_number_of_tries_is_bounded() -> None:
    lines = [user(f"n{i}") for i in range(40)]
    session = read_lines(*lines)
    pieces = pieces_of(session)
    bench = Bench(spoil='"x":')  # whatever is rendered is spoiled, so that each try fails one group earlier
    outcome = restore((*session.messages, *read_lines(MORE).messages), pieces, bench)
    assert isinstance(outcome, RestoreReport)
    assert bench.splices <= MAX_TRIES
    assert len(outcome.warnings) <= MAX_TRIES


def test_parallel_results_return_in_their_own_order() -> None:  # example 6
    stored = session_of(user("go"), bot(call("a"), call("b")), out("b", "rb"), out("a", "ra"))
    session = stored.read()
    assert text(restore(session.messages, pieces_of(session))) == stored.data


def test_an_end_in_the_middle_stops_there() -> None:
    pieces = pieces_of(SESSION)
    pieces[0] = msgspec.structs.replace(pieces[0], end_of_source=True)
    restored = restore(SESSION.messages, pieces)
    assert isinstance(restored, Restored)
    assert restored.report.restored_messages == 1
    assert text(restored).endswith(bot("aloha"))


def test_an_empty_session() -> None:  # example 9
    stored = session_of(USAGE, USAGE)
    choice = choice_of(candidate_of(pieces_of(stored.read()), capture=5, source="src"))
    for keys in ((), (first_key(),)):
        restored = restore_conversation((), keys, choice, [Shape("p1.lines", 9)], Bench())
        assert text(restored) == stored.data
        assert isinstance(restored, Restored)
        assert restored.report == RestoreReport("whole", 0, 0, "src", 5)


def test_an_empty_session_that_reads_back_with_messages_is_not_restored() -> None:
    forged = Piece.of(first_key(), [row("meta", id="p1"), HI], end=True)
    outcome = restore((), [forged])
    assert outcome == RestoreReport("plain", 0, 0, reason="unsound")


# --- several streams ---------------------------------------------------------------------------------------------


def streams_of(*datas: bytes) -> tuple[Session, tuple[Shape, ...]]:
    source = Source(tuple(Stream(f"{n}.lines", data, 0o600 + n) for n, data in enumerate(datas)))
    session = FORMAT.read(source)
    return session, shapes_of(session.records)


META = row("meta", id="p1")


def test_several_streams_come_back_as_they_were() -> None:
    datas = (META + HI, b"", HELLO + USAGE, b"")
    session, shapes = streams_of(*datas)
    restored = restore(session.messages, pieces_of(session), shapes=shapes)
    assert isinstance(restored, Restored)
    assert [bytes(s.data) for s in restored.streams] == list(datas)
    assert [(s.path, s.mode) for s in restored.streams] == [(f"{n}.lines", 0o600 + n) for n in range(4)]


def test_a_prefix_that_ends_with_a_stream_leaves_the_next_ones_out() -> None:
    session, shapes = streams_of(META + HI, HELLO, USAGE + MORE)
    messages = (*session.messages[:2], *read_lines(user("another way")).messages)
    restored = restore(messages, pieces_of(session), matched=2, shapes=shapes)
    assert isinstance(restored, Restored)
    # The record between lies in the third stream and belongs to the second group.
    assert [bytes(s.data) for s in restored.streams] == [META + HI, HELLO, USAGE + user("another way")]
    first = restore(messages[:1], pieces_of(session), matched=1, shapes=shapes)
    assert isinstance(first, Restored)
    assert [bytes(s.data) for s in first.streams] == [META + HI]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(0, 12))
def test_streams_are_filled_in_order(counts: list[int], given_records: int) -> None:
    rows = [bytes([65 + n]) for n in range(given_records)]
    shapes = [Shape(str(n), count) for n, count in enumerate(counts)]
    streams = lay_streams(iter(rows), shapes, Bench())
    assert b"".join(bytes(s.data) for s in streams) == b"".join(rows)
    assert [s.path for s in streams] == [shape.path for shape in shapes[: len(streams)]]
    for stream, shape in zip(streams[:-1], shapes, strict=False):
        assert len(stream.data) == shape.records
    missing = shapes[len(streams) :]
    if missing:
        assert sum(counts) > given_records
        assert sum(counts[: len(streams)]) >= given_records


def test_records_are_taken_one_by_one() -> None:
    taken: list[int] = []

    def records() -> Iterator[bytes]:
        for number in range(4):
            taken.append(number)
            yield b"x"

    class Slow(Bench):
        def hold(self, path: str, mode: int, pieces: Iterable[bytes]) -> Stream:
            for count, _ in enumerate(pieces, 1):
                assert len(taken) <= count + 1
            return Stream(path, b"")

    lay_streams(records(), [Shape("a", 4)], Slow())
    assert taken == [0, 1, 2, 3]


# --- the first difference ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "differs"),
    [
        ((HI, HELLO), None),
        ((HI,), 1),
        ((), 0),
        ((HI, HELLO, MORE), 2),
        ((HI, bot("other")), 1),
        ((MORE, HELLO), 0),
    ],
)
def test_first_difference(lines: tuple[bytes, ...], differs: int | None) -> None:
    keys = tuple(keys_of(read_lines(HI, HELLO).messages))
    assert first_difference(keys, read_lines(*lines).messages) == differs


def test_no_difference_between_nothing_and_nothing() -> None:
    assert first_difference((), ()) is None
    assert first_difference((ChainKey("x"),), ()) == 0
