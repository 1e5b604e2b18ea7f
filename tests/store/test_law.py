"""What every store promises: one suite for all implementations of the residue store, the threads and the list
cache."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest

from clew.conversation.digest import bytes_digest, segment_digest
from clew.errors import Conflict, NotFoundError
from clew.ids import AgentName, CaptureId, Digest, NativeId, ThreadId
from clew.store.protocol import (
    UNKEYED,
    Cached,
    FileFacts,
    Limits,
    ListCache,
    NewSegment,
    ResidueStore,
    StreamEntry,
    ThreadStore,
)
from store_making import (
    CLAUDE,
    CODEX,
    NOW,
    bytes_of,
    make_groups,
    make_key,
    make_new,
    make_segments,
    make_side,
    put,
)

GROUPS = make_groups(7)
WHOLE = b"".join(record for group in GROUPS for record in group)


# --- residue: what is put comes back ----------------------------------------------------------------------


def test_a_capture_comes_back_whole(residue: ResidueStore):
    new = make_new(GROUPS, facts=b"\x00any\xff")
    capture = residue.put_capture(new, iter(make_segments(GROUPS)))
    row = residue.capture(capture)
    assert row.id == capture
    for field in ("agent", "session_id", "source_id", "taken_at", "streams", "facts", "refers", "message_count"):
        assert getattr(row, field) == getattr(new, field)
    assert (row.segment_count, row.side_count, row.size) == (7, 0, len(WHOLE))
    assert row.first_key == make_key(GROUPS[0])
    assert bytes_of(residue, capture) == WHOLE
    segments = list(residue.segments(capture))
    assert [segment.key for segment in segments] == list(residue.keys(capture))
    assert [segment.digest for segment in segments] == list(residue.digests(capture))
    assert [list(segment.records()) for segment in segments] == GROUPS
    assert [segment.end_of_source for segment in segments] == [False] * 6 + [True]


def test_part_of_a_capture_can_be_read(residue: ResidueStore):
    capture = put(residue, GROUPS)
    keys = residue.keys(capture)
    assert [segment.key for segment in residue.segments(capture, 2, 5)] == list(keys[2:5])
    assert [segment.key for segment in residue.segments(capture, 5)] == list(keys[5:])
    assert list(residue.segments(capture, 7)) == []
    assert list(residue.segments(capture, 3, 3)) == []


def test_any_bytes_are_kept(residue: ResidueStore):
    groups = [[b"", b"\x00\xff\n", b""], [b""], [], [bytes(range(256)) * 9]]
    segments = [
        NewSegment(make_key(*groups[: n + 1]), segment_digest(group), tuple(map(len, group)), b"".join(group))
        for n, group in enumerate(groups)
    ]
    capture = residue.put_capture(make_new(groups), segments)
    assert [list(segment.records()) for segment in residue.segments(capture)] == groups


def test_bytes_may_come_in_any_buffer_that_is_used_again(residue: ResidueStore):
    buffer = bytearray(200)

    def segments() -> Iterator[NewSegment]:
        for number, group in enumerate(GROUPS):
            data = b"".join(group)
            buffer[: len(data)] = data
            view = memoryview(buffer)[: len(data)]
            yield NewSegment(make_key(*GROUPS[: number + 1]), segment_digest(group), tuple(map(len, group)), view)
            view.release()

    assert bytes_of(residue, residue.put_capture(make_new(GROUPS), segments())) == WHOLE


def test_a_session_without_segments_is_kept(residue: ResidueStore):
    capture = residue.put_capture(make_new([]), [])
    assert residue.keys(capture) == ()
    assert list(residue.segments(capture)) == []
    assert residue.capture(capture).first_key is None


def test_ids_and_paths_may_be_no_text(residue: ResidueStore):
    odd = "x\ud800\x00'é"
    new = msgspec.structs.replace(
        make_new(GROUPS, session=odd), streams=(StreamEntry(odd, 0o644, 1, 2), StreamEntry("\udcff", 0, 0, 0))
    )
    capture = residue.put_capture(new, make_segments(GROUPS))
    assert residue.capture(capture).session_id == odd
    assert residue.capture(capture).streams == new.streams
    assert [row.id for row in residue.captures(session_id=NativeId(odd))] == [capture]


def test_nothing_is_found_where_there_is_nothing(residue: ResidueStore):
    assert residue.captures() == residue.newest() == residue.heads(CLAUDE, make_key()) == ()
    assert residue.lookup(CLAUDE, make_key()) == ()
    assert residue.side_data(bytes_digest(b"")) is None
    assert list(residue.fsck()) == []
    assert residue.stats().captures == 0
    for ask in (residue.capture, residue.keys, residue.digests, residue.segments, residue.side_files):
        with pytest.raises(NotFoundError):
            ask(CaptureId(1))


# --- residue: all or nothing, once ------------------------------------------------------------------------


def test_a_capture_that_fails_leaves_nothing(residue: ResidueStore):
    def segments() -> Iterator[NewSegment]:
        yield from make_segments(GROUPS)[:3]
        raise NotFoundError("the source is gone")

    with pytest.raises(NotFoundError, match="the source is gone"):
        residue.put_capture(make_new(GROUPS), segments(), make_side(a=b"1"))
    assert residue.captures() == ()
    assert residue.stats().segments == 0
    assert put(residue, GROUPS) in {row.id for row in residue.captures()}


def test_the_same_capture_again_is_the_same_one(residue: ResidueStore):
    side = make_side(a=b"1", b=b"22")
    first = put(residue, GROUPS, side=side)
    before = residue.stats()
    assert put(residue, GROUPS, side=side, at=100) == first
    assert put(residue, GROUPS, side=side, base=first, shared=5) == first
    assert put(residue, GROUPS, side=side, base=first, shared=7) == first
    assert residue.capture(first).taken_at == NOW
    assert msgspec.structs.replace(residue.stats(), file_size=0) == msgspec.structs.replace(before, file_size=0)


@pytest.mark.parametrize("what", ["facts", "side", "end", "stream", "refers", "order"])
def test_a_capture_that_differs_anywhere_is_another_one(residue: ResidueStore, what: str):
    first = put(residue, GROUPS)
    new, segments, side = make_new(GROUPS), make_segments(GROUPS), make_side()
    if what == "facts":
        new = make_new(GROUPS, facts=b"moved")
    elif what == "side":
        side = make_side(a=b"1")
    elif what == "end":
        segments = make_segments(GROUPS, end=False)
    elif what == "stream":
        new = msgspec.structs.replace(new, streams=(StreamEntry("elsewhere", 0o600, len(WHOLE), 14),))
    elif what == "refers":
        new = make_new(GROUPS, refers=[first])
    else:
        segments[5], segments[4] = segments[4], segments[5]
    second = residue.put_capture(new, segments, side)
    assert second > first
    assert [segment.digest for segment in residue.segments(second)] == [one.digest for one in segments]
    assert bytes_of(residue, first) == WHOLE


def test_only_the_newest_capture_counts_as_the_same(residue: ResidueStore):
    first = put(residue, GROUPS[:5])
    second = put(residue, GROUPS)
    third = put(residue, GROUPS[:5])
    assert first < second < third
    assert bytes_of(residue, third) == bytes_of(residue, first)


def test_bytes_are_kept_once_whatever_holds_them(residue: ResidueStore):
    put(residue, GROUPS, side=make_side(a=WHOLE))
    once = residue.stats()
    put(residue, GROUPS, session="twin", side=make_side(b=WHOLE))
    put(residue, GROUPS, agent=CODEX)
    put(residue, [GROUPS[0], GROUPS[0], GROUPS[0]], session="thrice")
    again = residue.stats()
    assert (again.captures, again.sources) == (4, 4)
    assert (again.segments, again.side_files, again.raw_size) == (once.segments, 1, once.raw_size)


# --- residue: grown sessions ------------------------------------------------------------------------------


@pytest.mark.parametrize("with_base", [True, False])
def test_a_growing_session_costs_what_was_added(residue: ResidueStore, with_base: bool):
    groups = make_groups(200)
    captures: list[CaptureId] = []
    for count in range(2, 200, 2):
        base = captures[-1] if captures and with_base else None
        shared = count - 3 if base else 0
        captures.append(put(residue, groups[:count], base=base, shared=shared, at=count))
    for count, capture in zip(range(2, 200, 2), captures, strict=True):
        assert residue.keys(capture) == tuple(one.key for one in make_segments(groups[:count]))
        ends = [segment.end_of_source for segment in residue.segments(capture)]
        assert ends == [False] * (count - 1) + [True]
    assert bytes_of(residue, captures[-1]) == b"".join(record for group in groups[:198] for record in group)
    assert residue.stats().segments == 198
    assert list(residue.fsck()) == []


def test_a_capture_may_go_back_and_on_from_any_base(residue: ResidueStore):
    first = put(residue, GROUPS)
    second = put(residue, [*GROUPS, [b"on\n"]], base=first, shared=6)
    branch = [*GROUPS[:3], [b"other\n"]]
    third = put(residue, branch, base=second, shared=3)
    fourth = put(residue, branch[:2], base=third, shared=2)
    fifth = residue.put_capture(make_new(GROUPS, facts=b"2"), [], base=first, shared=7)
    assert residue.keys(third) == tuple(one.key for one in make_segments(branch))
    assert [segment.data for segment in residue.segments(fourth)] == [b"".join(group) for group in GROUPS[:2]]
    assert bytes_of(residue, fifth) == bytes_of(residue, first)
    assert residue.digests(fifth) == residue.digests(first)


def test_a_base_of_another_source_serves_as_well(residue: ResidueStore):
    parent = put(residue, GROUPS)
    fork = put(residue, [*GROUPS, [b"fork\n"]], session="fork", base=parent, shared=6, refers=[parent])
    assert bytes_of(residue, fork) == WHOLE + b"fork\n"
    assert residue.capture(fork).refers == (parent,)


def test_a_base_that_does_not_serve_is_refused_before_anything_is_read(residue: ResidueStore):
    def never() -> Iterator[NewSegment]:
        pytest.fail("the segments were read")
        yield

    capture = put(residue, GROUPS)
    for base, shared in ((CaptureId(99), 1), (capture, 8)):
        with pytest.raises(Conflict):
            residue.put_capture(make_new(GROUPS), never(), base=base, shared=shared)


# --- residue: finding -------------------------------------------------------------------------------------


def test_captures_are_found_by_what_they_are_of(residue: ResidueStore):
    a1 = put(residue, GROUPS[:3], session="a")
    b = put(residue, GROUPS, session="b")
    none = put(residue, GROUPS, session=None)
    a2 = put(residue, GROUPS[:4], session="a")
    other = put(residue, GROUPS, session="a", agent=CODEX)
    ids = [row.id for row in residue.captures()]
    assert ids == [a1, b, none, a2, other] == sorted(ids)
    source = residue.capture(a1).source_id
    assert [row.id for row in residue.captures(agent=CLAUDE, session_id=NativeId("a"))] == [a1, a2]
    assert [row.id for row in residue.captures(source_id=source)] == [a1, a2]
    assert [row.id for row in residue.captures(agent=AgentName("pi"))] == []
    assert [row.id for row in residue.newest()] == [b, none, a2, other]
    assert [row.id for row in residue.newest(agent=CLAUDE)] == [b, none, a2]
    assert [row.id for row in residue.newest(session_id=NativeId("a"))] == [a2, other]
    assert [row.id for row in residue.newest(source_id=source)] == [a2]


def test_heads_are_the_captures_that_begin_with_a_key(residue: ResidueStore):
    first = put(residue, GROUPS[:2])
    put(residue, make_groups(3, name="else"), session="else")
    put(residue, GROUPS, agent=CODEX)
    twin = put(residue, GROUPS, session="twin")
    assert [row.id for row in residue.heads(CLAUDE, make_key(GROUPS[0]))] == [first, twin]
    assert residue.heads(CLAUDE, make_key(*GROUPS[:2])) == ()


def test_lookup_finds_every_segment_under_a_key(residue: ResidueStore):
    first = put(residue, GROUPS[:3])
    put(residue, GROUPS[:5], base=first, shared=2)
    twin = put(residue, GROUPS[:3], session="twin")
    put(residue, GROUPS, agent=CODEX)
    key = make_key(*GROUPS[:3])
    found = residue.lookup(CLAUDE, key)
    data = b"".join(GROUPS[2])
    assert [(one.capture, one.number, one.segment.end_of_source) for one in found] == [
        (first, 2, True),
        (first + 1, 2, False),
        (twin, 2, True),
    ]
    assert {one.segment.data for one in found} == {data}
    assert [one.session_id for one in found] == ["s1", "s1", "twin"]
    assert residue.lookup(CLAUDE, make_key(b"no")) == ()


def test_records_without_a_key_are_kept_but_not_found(residue: ResidueStore):
    tail = NewSegment(UNKEYED, segment_digest([b"tail\n"]), (5,), b"tail\n")
    capture = residue.put_capture(make_new(GROUPS), [*make_segments(GROUPS), tail])
    only = residue.put_capture(make_new([], session="x"), [tail])
    assert bytes_of(residue, capture) == WHOLE + b"tail\n"
    assert residue.keys(only) == (UNKEYED,)
    assert residue.capture(only).first_key is None
    assert residue.heads(CLAUDE, UNKEYED) == residue.lookup(CLAUDE, UNKEYED) == ()


# --- residue: side files ----------------------------------------------------------------------------------


def test_side_files_come_back_in_order(residue: ResidueStore):
    side = make_side(b=b"2" * 5000, a=b"", c=b"2" * 5000)
    capture = put(residue, GROUPS, side=iter(side))
    assert residue.side_files(capture) == tuple(entry for entry, _ in side)
    for entry, data in side:
        assert residue.side_data(entry.digest) == data
    assert residue.capture(capture).side_count == 3
    assert residue.stats().side_files == 2


def test_a_side_file_is_no_segment_even_with_the_same_digest(residue: ResidueStore):
    digest = segment_digest([b"x"])
    framed = len(b"x").to_bytes(8, "little") + b"x"
    assert bytes_digest(framed) == digest
    capture = put(residue, [[b"x"]], side=make_side(f=framed))
    assert bytes_of(residue, capture) == b"x"
    assert residue.side_data(digest) == framed


# --- residue: upkeep --------------------------------------------------------------------------------------


def test_forgetting_takes_only_what_nobody_else_holds(residue: ResidueStore):
    first = put(residue, GROUPS, side=make_side(a=b"secret", b=b"shared"))
    second = put(residue, [*GROUPS[:4], [b"new\n"]], session="other", side=make_side(b=b"shared"))
    freed = residue.forget([first, CaptureId(99), first])
    assert freed.captures == (first,)
    assert freed.segments == 3
    assert freed.size == sum(len(record) for group in GROUPS[4:] for record in group) + 6
    assert [row.id for row in residue.captures()] == [second]
    assert bytes_of(residue, second) == b"".join(r for g in GROUPS[:4] for r in g) + b"new\n"
    assert residue.side_data(bytes_digest(b"secret")) is None
    assert residue.side_data(bytes_digest(b"shared")) == b"shared"
    assert residue.lookup(CLAUDE, make_key(*GROUPS[:5])) == ()
    assert list(residue.fsck()) == []


def test_forgetting_the_base_leaves_what_grew_from_it(residue: ResidueStore):
    first = put(residue, GROUPS)
    second = put(residue, [*GROUPS[:5], [b"branch\n"]], base=first, shared=5)
    residue.forget([first])
    assert bytes_of(residue, second).endswith(b"branch\n")
    assert residue.stats().segments == 6
    assert put(residue, GROUPS) > second
    assert list(residue.fsck()) == []


def test_numbers_of_captures_are_not_used_again(residue: ResidueStore):
    first = put(residue, GROUPS)
    residue.forget([first])
    assert put(residue, GROUPS) > first


def test_eviction_takes_whole_captures_oldest_first_and_never_the_newest(residue: ResidueStore):
    size = len(GROUPS[0][0])
    sessions = [[[b"%d" % n * size]] for n in range(5)]
    old = [put(residue, groups, session="s", at=n) for n, groups in enumerate([[[b"0"], *g] for g in sessions])]
    other = put(residue, [[b"o" * size]], session="o")
    freed = residue.evict(Limits(per_session=3 * size))
    assert freed.captures == tuple(old[:3])
    assert residue.evict(Limits(per_session=3 * size)).captures == ()
    freed = residue.evict(Limits(total=0))
    assert freed.captures == (old[3],)
    assert [row.id for row in residue.captures()] == [old[4], other]
    assert list(residue.fsck()) == []


def test_eviction_spares_what_is_referred_to(residue: ResidueStore):
    parent = put(residue, GROUPS[:2])
    put(residue, GROUPS[:3])
    fork1 = put(residue, GROUPS, session="fork", refers=[parent])
    put(residue, GROUPS, session="fork", facts=b"2")
    assert residue.evict(Limits(total=0)).captures == (parent, fork1)


def test_eviction_counts_shared_bytes_once(residue: ResidueStore):
    first = put(residue, GROUPS)
    put(residue, [*GROUPS, [b"x"]], base=first, shared=6)
    total = residue.stats().raw_size
    assert residue.evict(Limits(per_session=total, total=total)).captures == ()
    assert residue.evict(Limits()).captures == ()
    assert residue.evict(Limits(total=total - 1)).captures == (first,)


def test_collecting_changes_nothing_that_is_held(residue: ResidueStore):
    captures = [put(residue, GROUPS[:n], session=f"s{n}", side=make_side(a=b"%d" % n)) for n in range(1, 7)]
    before = [bytes_of(residue, capture) for capture in captures]
    assert residue.gc().captures == ()
    assert [bytes_of(residue, capture) for capture in captures] == before
    assert list(residue.fsck()) == []


def test_a_false_source_id_is_found(residue: ResidueStore):
    capture = residue.put_capture(make_new(GROUPS, session="a"), make_segments(GROUPS))
    false = msgspec.structs.replace(make_new(GROUPS), session_id=NativeId("b"))
    residue.put_capture(false, make_segments(GROUPS))
    undeclared = msgspec.structs.replace(make_new([[b"elsewhere"]], session="c"), source_record=None)
    residue.put_capture(undeclared, make_segments(GROUPS))
    late = msgspec.structs.replace(make_new([GROUPS[1]], session="d"), source_record=1)
    residue.put_capture(late, make_segments(GROUPS))
    assert [(one.sort, one.capture) for one in residue.fsck()] == [("source_id", capture + 1)]


def test_a_false_digest_is_delivered_and_found(residue: ResidueStore):
    false = Digest("0" * 64)
    new = make_new([[b"x"]])
    capture = residue.put_capture(new, [NewSegment(make_key([b"x"]), false, (1,), b"x")])
    assert [segment.data for segment in residue.segments(capture)] == [b"x"]
    assert ("segment_digest", 0) in [(one.sort, one.number) for one in residue.fsck()]
    assert residue.drop_damaged() == 1
    assert [segment.data for segment in residue.segments(capture)] == [None]
    with pytest.raises(Conflict):
        residue.put_capture(new, [], base=capture, shared=1)
    assert residue.put_capture(new, make_segments([[b"x"]])) > capture


def test_dangling_references_are_found(residue: ResidueStore):
    first = put(residue, GROUPS)
    second = put(residue, GROUPS, session="fork", refers=[first])
    residue.forget([first])
    assert [(one.sort, one.capture) for one in residue.fsck()] == [("refers_missing", second)]


# --- threads ----------------------------------------------------------------------------------------------

T1, T2 = ThreadId("t0000000000000001"), ThreadId("t0000000000000002")
LATER = NOW + timedelta(seconds=1)


def put_strand(store: ThreadStore, name: str, thread: ThreadId = T1, expected: int | None = None, **given: object):
    values = {
        "agent": CLAUDE,
        "native_id": NativeId("n-" + name),
        "body": b"chain",
        "roots": (f'claude-jsonl/claude:"{name}"',),
        "now": NOW,
        **given,
    }
    return store.put_strand(name, thread=thread, expected=expected, **values)  # type: ignore[arg-type]


def test_a_thread_is_written_by_compare_and_swap(threads: ThreadStore):
    assert threads.thread(T1) is None
    assert threads.put_thread(T1, b"\x00\xff", expected=None, now=NOW) == 1
    assert threads.put_thread(T1, b"2", expected=1, now=LATER) == 2
    row = threads.thread(T1)
    assert row is not None
    assert (row.id, row.body, row.revision, row.created_at, row.updated_at) == (T1, b"2", 2, NOW, LATER)
    for expected in (None, 1, 3):
        with pytest.raises(Conflict) as caught:
            threads.put_thread(T1, b"lost", expected=expected, now=NOW)
        assert caught.value.concerns["found"] == 2
    with pytest.raises(Conflict):
        threads.put_thread(T2, b"", expected=1, now=NOW)
    assert threads.thread(T1) == row
    assert threads.threads() == (row,)


def test_a_strand_is_written_by_compare_and_swap_and_found_by_all_its_names(threads: ThreadStore):
    with pytest.raises(NotFoundError):
        put_strand(threads, "s1")
    threads.put_thread(T1, b"", expected=None, now=NOW)
    threads.put_thread(T2, b"", expected=None, now=NOW)
    assert put_strand(threads, "s1") == 1
    assert put_strand(threads, "s2", T2, agent=CODEX, now=LATER) == 1
    assert put_strand(threads, "s1", expected=1, roots=("r2", "r1", "r\ud800"), native_id=NativeId("n2\ud800")) == 2
    row = threads.strand("s1")
    assert row is not None
    assert (row.thread, row.agent, row.native_id, row.body) == (T1, CLAUDE, "n2\ud800", b"chain")
    assert (row.roots, row.revision) == (("r2", "r1", "r\ud800"), 2)
    for expected in (None, 1):
        with pytest.raises(Conflict):
            put_strand(threads, "s1", expected=expected)
    with pytest.raises(Conflict):
        put_strand(threads, "s1", expected=2, agent=CODEX)
    assert threads.strand("s1") == row
    assert [one.id for one in threads.strands()] == ["s1", "s2"]
    assert [one.id for one in threads.strands(thread=T2)] == ["s2"]
    assert [one.id for one in threads.strands(agent=CLAUDE)] == ["s1"]
    assert [one.id for one in threads.strands(agent=CLAUDE, native_id=NativeId("n2\ud800"))] == ["s1"]
    assert [one.id for one in threads.strands(agent=CODEX, native_id=NativeId("n2\ud800"))] == []
    assert [one.id for one in threads.strands(root="r1")] == ["s1"]
    assert threads.strands(root='claude-jsonl/claude:"s1"') == ()
    assert threads.strand("none") is None


def test_edges_are_added_and_keep_their_order(threads: ThreadStore):
    threads.put_thread(T1, b"", expected=None, now=NOW)
    threads.put_thread(T2, b"", expected=None, now=NOW)
    for name, thread in (("a", T1), ("b", T1), ("c", T2)):
        put_strand(threads, name, thread)
    first = threads.add_edge("created", from_strand=None, to_strand="a", body=b"{}", now=NOW)
    second = threads.add_edge("translated", from_strand="a", to_strand="b", body=b"\xff", now=LATER)
    third = threads.add_edge("forked", from_strand="b", to_strand="c", body=b"", now=NOW)
    assert first < second < third
    edges = threads.edges()
    assert [edge.id for edge in edges] == [first, second, third]
    edge = edges[1]
    assert (edge.kind, edge.from_strand, edge.to_strand, edge.body, edge.at) == ("translated", "a", "b", b"\xff", LATER)
    assert [edge.id for edge in threads.edges(thread=T1)] == [first, second, third]
    assert [edge.id for edge in threads.edges(thread=T2)] == [third]
    assert [edge.id for edge in threads.edges(strand="a")] == [first, second]
    for from_strand, to_strand in ((None, "x"), ("x", "a")):
        with pytest.raises(NotFoundError):
            threads.add_edge("forked", from_strand=from_strand, to_strand=to_strand, body=b"", now=NOW)


def test_removing_a_thread_takes_its_strands_and_their_own_edges(threads: ThreadStore):
    threads.put_thread(T1, b"", expected=None, now=NOW)
    threads.put_thread(T2, b"", expected=None, now=NOW)
    for name, thread in (("a", T1), ("b", T1), ("c", T2)):
        put_strand(threads, name, thread)
    threads.add_edge("created", from_strand=None, to_strand="a", body=b"", now=NOW)
    threads.add_edge("translated", from_strand="a", to_strand="b", body=b"", now=NOW)
    fork = threads.add_edge("forked", from_strand="b", to_strand="c", body=b"", now=NOW)
    with pytest.raises(Conflict):
        threads.remove_thread(T1, expected=2)
    assert len(threads.strands()) == 3
    threads.remove_thread(T1, expected=1)
    assert [row.id for row in threads.strands()] == ["c"]
    assert [row.id for row in threads.threads()] == [T2]
    assert [edge.id for edge in threads.edges()] == [fork]
    assert threads.strands(root='claude-jsonl/claude:"a"') == ()


def test_a_thread_that_joins_another_brings_its_strands_and_is_gone(threads: ThreadStore):
    threads.put_thread(T1, b"one", expected=None, now=NOW)
    threads.put_thread(T2, b"", expected=None, now=NOW)
    for name, thread in (("a", T1), ("b", T2), ("c", T2)):
        put_strand(threads, name, thread)
    edge = threads.add_edge("translated", from_strand="b", to_strand="c", body=b"", now=NOW)
    before = threads.strand("b")
    assert before is not None
    threads.join_thread(T1, T2)
    assert threads.strand("b") == msgspec.structs.replace(before, thread=T1)
    assert [row.id for row in threads.strands(thread=T1)] == ["a", "b", "c"]
    assert [row.id for row in threads.threads()] == [T1]
    assert [row.id for row in threads.edges(thread=T1)] == [edge]
    for other in (T1, T2):
        threads.join_thread(T1, other)
    assert len(threads.strands(thread=T1)) == 3
    with pytest.raises(NotFoundError):
        threads.join_thread(T2, T1)


def test_a_transaction_is_all_or_nothing(threads: ThreadStore):
    def half() -> None:
        with threads.transaction():
            threads.put_thread(T1, b"", expected=None, now=NOW)
            put_strand(threads, "a")
            threads.add_edge("created", from_strand=None, to_strand="a", body=b"", now=NOW)
            assert threads.strand("a") is not None
            raise NotFoundError("half way")

    with pytest.raises(NotFoundError, match="half way"):
        half()
    assert (threads.threads(), threads.strands(), threads.edges()) == ((), (), ())
    with threads.transaction():
        threads.put_thread(T1, b"", expected=None, now=NOW)
        put_strand(threads, "a")
    assert threads.strand("a") is not None


def test_a_failed_inner_block_undoes_only_itself(threads: ThreadStore):
    def inner() -> None:
        with threads.transaction():
            threads.put_thread(T2, b"inner", expected=None, now=NOW)
            threads.put_thread(T1, b"", expected=None, now=NOW)

    with threads.transaction():
        threads.put_thread(T1, b"outer", expected=None, now=NOW)
        with pytest.raises(Conflict):
            inner()
        put_strand(threads, "a")
    assert [row.id for row in threads.threads()] == [T1]
    assert threads.strand("a") is not None


# --- list cache -------------------------------------------------------------------------------------------


def test_the_list_cache_remembers_by_agent_and_path(index: ListCache):
    one = Cached(FileFacts(1, 2, 2**64 - 1), b"\x00body")
    two = Cached(FileFacts(3, 4, 5), b"")
    assert index.get_all(CLAUDE) == {}
    index.put_many(CLAUDE, [("/a", one), ("/\udcff\ud800", two)])
    index.put_many(CODEX, [("/a", two)])
    assert index.get_all(CLAUDE) == {"/a": one, "/\udcff\ud800": two}
    index.put_many(CLAUDE, [("/a", two)])
    index.put_many(CLAUDE, [])
    assert index.get_all(CLAUDE)["/a"] == two
    index.remove(CLAUDE, ["/a", "/none"])
    assert list(index.get_all(CLAUDE)) == ["/\udcff\ud800"]
    assert index.get_all(CODEX) == {"/a": two}
