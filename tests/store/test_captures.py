"""The residue store on disk: packs and lists, damage, races, and processes killed in the middle."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clew.conversation.digest import bytes_digest, segment_digest
from clew.errors import StoreDamaged
from clew.ids import CaptureId, Digest
from clew.platform import faults
from clew.store import body, lists, pack, packing
from clew.store.lists import Entries
from clew.store.opening import Stores, open_stores
from clew.store.protocol import Limits, NewSegment
from store_making import CLAUDE, bytes_of, make_groups, make_key, make_new, make_segments, make_side, put

GROUPS = make_groups(60)
WHOLE = b"".join(record for group in GROUPS for record in group)


def raw(stores: Stores, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Runs a statement on the file behind the store's back."""
    stores.close()
    connection = apsw.Connection(str(stores.data / "residue.db"))
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


# --- packs and lists --------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.binary(max_size=50), max_size=4), max_size=6))
def test_a_pack_gives_back_its_slots(slots: list[list[bytes]]):
    lengths = [tuple(map(len, records)) for records in slots]
    data = pack.Compressor().compress(lengths, [b"".join(records) for records in slots])
    contents = pack.read_pack(data)
    assert contents is not None
    assert list(contents) == [(one, b"".join(records)) for one, records in zip(lengths, slots, strict=True)]


@given(st.data())
def test_a_damaged_pack_is_none_or_still_fits_itself(data: st.DataObject):
    good = pack.Compressor().compress([(3, 4), (2000,)], [b"abcdefg" + b"x" * 2000])
    at = data.draw(st.integers(0, len(good) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "join"]))
    if kind == "flip":
        bad = good[:at] + bytes([good[at] ^ (1 << data.draw(st.integers(0, 7)))]) + good[at + 1 :]
    else:
        bad = good[:at] if kind == "cut" else good + good[:at]
    contents = pack.read_pack(bad)
    assert contents is None or list(contents) == list(pack.read_pack(good) or ())


def test_one_compressor_makes_many_packs():
    compressor = pack.Compressor()
    large = memoryview(b"0123456789" * 1000)
    for _ in range(3):
        assert pack.read_pack(compressor.compress([(1,)], [b"x"])) is not None
        contents = pack.read_pack(compressor.compress_large((4, 9996), large))
        assert contents is not None
        assert contents.lengths(0) == (4, 9996)
        assert contents.data(0) == large


entries = st.lists(
    st.tuples(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32), st.booleans()), max_size=8
)


def as_entries(items: list[tuple[bytes, bytes, bool]]) -> Entries:
    return Entries(
        b"".join(one[0] for one in items),
        b"".join(one[1] for one in items),
        tuple(number for number, one in enumerate(items) if one[2]),
    )


@given(entries, entries, st.integers(0, 8))
def test_entries_behave_as_a_list(one: list[tuple[bytes, bytes, bool]], other: list[tuple[bytes, bytes, bool]], n: int):
    assert as_entries(one).plus(as_entries(other)) == as_entries(one + other)
    assert as_entries(one).first(n) == as_entries(one[:n])
    assert as_entries(one).after(n) == as_entries(one[n:])
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    assert as_entries(one).common(as_entries(other)) == common
    assert as_entries(one).common(as_entries(one + other)) == len(one)
    assert lists.read_ends(lists.make_ends(as_entries(one).ends)) == as_entries(one).ends


@given(st.binary(max_size=60))
def test_any_bytes_as_a_body_are_read_or_none(data: bytes):
    body.read_body(data)


@settings(max_examples=30)
@given(st.data())
def test_a_flipped_body_is_read_or_none(data: st.DataObject):
    good = body.make_body(make_new(GROUPS, refers=[1, 300]), tuple(entry for entry, _ in make_side(a=b"1")))
    assert body.read_body(good) is not None
    at = data.draw(st.integers(0, len(good) - 1))
    body.read_body(good[:at] + bytes([good[at] ^ (1 << data.draw(st.integers(0, 7)))]) + good[at + 1 :])


@pytest.mark.usefixtures("small_packs")
def test_a_long_session_fills_several_packs_in_order(stores: Stores):
    large = [b"L" * 5000, b"l" * 100]
    groups = [*GROUPS, large, *make_groups(60, name="after")]
    capture = put(stores.residue, groups)
    assert bytes_of(stores.residue, capture) == b"".join(record for group in groups for record in group)
    assert len(raw(stores, "SELECT id FROM packs")) > 5
    assert list(stores.residue.fsck()) == []


@pytest.mark.usefixtures("small_packs")
def test_a_session_that_repeats_itself_is_kept_once(stores: Stores):
    groups = [*GROUPS, *GROUPS, [b"L" * 5000], *GROUPS, [b"L" * 5000]]
    capture = put(stores.residue, groups)
    assert bytes_of(stores.residue, capture) == WHOLE + WHOLE + b"L" * 5000 + WHOLE + b"L" * 5000
    assert stores.residue.stats().segments == 61


def test_small_captures_of_a_growing_session_share_one_pack(stores: Stores):
    groups = make_groups(80)
    for count in range(1, 80):
        put(stores.residue, groups[:count])
    assert len(raw(stores, "SELECT id FROM packs")) == 1
    assert raw(stores, "SELECT max(depth) < 64, count(*) FROM lists") == [(1, 79)]
    for row in stores.residue.captures():
        count = row.segment_count
        assert bytes_of(stores.residue, row.id) == b"".join(r for group in groups[:count] for r in group)


def test_fifty_captures_cost_about_one(tmp_path: Path):
    groups = make_groups(500, size=400)
    with open_stores(tmp_path / "one") as stores:
        put(stores.residue, groups)
    with open_stores(tmp_path / "fifty") as stores:
        base = None
        for count in range(10, 501, 10):
            base = put(stores.residue, groups[:count], base=base, shared=max(0, count - 11))
        assert stores.residue.stats().captures == 50
    sizes = [(tmp_path / name / "residue.db").stat().st_size for name in ("one", "fifty")]
    assert sizes[1] < 1.6 * sizes[0]


@pytest.mark.usefixtures("small_packs")
def test_forgotten_bytes_are_nowhere_in_the_file(stores: Stores, monkeypatch: pytest.MonkeyPatch):
    # Stored as it is, so that what is forgotten can be looked for in the file.
    def store(self: pack.Compressor, lengths: Any, parts: Any) -> bytes:
        return pack._head(lengths) + b"".join(parts)

    monkeypatch.setattr(pack.Compressor, "compress", store)
    monkeypatch.setattr(pack.zstd, "decompress", lambda data: data)
    secret = b"SECRET-0123456789"
    first = put(stores.residue, [GROUPS[0], [secret + b"\n"], *GROUPS[1:20]], side=make_side(a=secret + b"side"))
    second = put(stores.residue, GROUPS[:20], session="other")
    assert secret in files_of(stores)
    stores.residue.forget([first])
    assert secret not in files_of(stores)
    assert bytes_of(stores.residue, second) == b"".join(r for group in GROUPS[:20] for r in group)


def files_of(stores: Stores) -> bytes:
    return b"".join(path.read_bytes() for path in stores.data.iterdir())


def test_space_is_given_back(stores: Stores):
    import random

    noise = [[random.Random(n).randbytes(20_000)] for n in range(50)]
    keep = put(stores.residue, GROUPS)
    capture = put(stores.residue, noise, session="big")
    big = stores.residue.stats().file_size
    assert big > 1_000_000
    stores.residue.forget([capture])
    assert stores.residue.stats().file_size < big // 5
    assert bytes_of(stores.residue, keep) == WHOLE


@pytest.mark.usefixtures("small_packs")
def test_collecting_joins_the_remains_of_packs(stores: Stores):
    for number in range(12):
        put(stores.residue, [[b"old %d" % number * 20]], session="s", facts=b"%d" % number)
        put(stores.residue, make_groups(2, name=f"n{number}"), session=f"other{number}")
    before = {row.id: bytes_of(stores.residue, row.id) for row in stores.residue.newest()}
    stores.residue.evict(Limits(total=0))
    stores.residue.gc()
    assert {row.id: bytes_of(stores.residue, row.id) for row in stores.residue.captures()} == before
    assert len(raw(stores, "SELECT id FROM packs")) < 6
    assert list(stores.residue.fsck()) == []


# --- damage -----------------------------------------------------------------------------------------------


def flip_pack(stores: Stores, number: int) -> None:
    data = bytearray(raw(stores, "SELECT data FROM packs ORDER BY id")[number][0])
    data[len(data) // 2] ^= 1
    ids = raw(stores, "SELECT id FROM packs ORDER BY id")
    raw(stores, "UPDATE packs SET data = ? WHERE id = ?", (bytes(data), ids[number][0]))


@pytest.mark.usefixtures("small_packs")
def test_a_flipped_byte_costs_the_segments_of_one_pack_and_nothing_else(stores: Stores):
    side = make_side(a=b"side" * 100)
    capture = put(stores.residue, GROUPS, side=side)
    flip_pack(stores, 1)
    missing = [n for n, segment in enumerate(stores.residue.segments(capture)) if segment.data is None]
    assert missing == list(range(missing[0], missing[-1] + 1))
    assert 0 < missing[0] < missing[-1] < 59
    for number, segment in enumerate(stores.residue.segments(capture)):
        assert segment.key == make_key(*GROUPS[: number + 1])
        if number not in missing:
            assert segment_digest(segment.records()) == segment.digest
    problems = list(stores.residue.fsck())
    assert [(one.sort, one.number) for one in problems] == [("pack_unreadable", number) for number in missing]
    assert {one.digest for one in problems} == {segment_digest(GROUPS[number]) for number in missing}
    assert stores.residue.side_data(bytes_digest(b"side" * 100)) == b"side" * 100


@pytest.mark.usefixtures("small_packs")
def test_what_was_damaged_can_be_captured_again(stores: Stores):
    capture = put(stores.residue, GROUPS)
    flip_pack(stores, 0)
    assert put(stores.residue, GROUPS) == capture
    dropped = stores.residue.drop_damaged()
    assert dropped > 0
    assert {one.sort for one in stores.residue.fsck()} == {"segment_missing"}
    again = put(stores.residue, GROUPS)
    assert again > capture
    assert bytes_of(stores.residue, again) == bytes_of(stores.residue, capture) == WHOLE
    assert list(stores.residue.fsck()) == []
    assert stores.residue.drop_damaged() == 0


def test_a_file_that_is_no_database_is_named_once(tmp_path: Path):
    (tmp_path / "residue.db").write_bytes(b"junk" * 1000)
    with open_stores(tmp_path) as stores:
        assert [one.sort for one in stores.residue.fsck()] == ["file_damaged"]


def test_growing_beside_a_damaged_pack_leaves_it_alone(stores: Stores):
    capture = put(stores.residue, GROUPS[:50])
    flip_pack(stores, 0)
    grown = put(stores.residue, GROUPS, base=capture, shared=49)
    data = [segment.data for segment in stores.residue.segments(grown)]
    assert data[:49] == [None] * 49
    assert data[50:] == [b"".join(group) for group in GROUPS[50:]]
    stores.residue.gc()
    assert len(raw(stores, "SELECT id FROM packs")) == 2


def test_growing_beside_a_tampered_segment_leaves_it_as_it_is(stores: Stores):
    false = NewSegment(make_key([b"x"]), Digest("0" * 64), (1,), b"x")
    capture = stores.residue.put_capture(make_new([[b"x"]]), [false])
    grown = stores.residue.put_capture(make_new(GROUPS), make_segments(GROUPS), base=capture, shared=1)
    first = next(stores.residue.segments(grown))
    assert (first.digest, first.data) == ("0" * 64, b"x")


@pytest.mark.parametrize(
    ("statement", "sorts"),
    [
        ("DELETE FROM packs", {"pack_unreadable"}),
        ("DELETE FROM places WHERE kind = 0", {"segment_missing"}),
        ("DELETE FROM places WHERE kind = 1", {"side_missing"}),
        ("UPDATE places SET slot = slot + 1", {"segment_digest", "pack_unreadable"}),
        ("UPDATE places SET slot = 1000", {"pack_unreadable"}),
        ("DELETE FROM lists", {"list_damaged"}),
        ("UPDATE lists SET keys = x'00'", {"list_damaged"}),
        ("UPDATE lists SET keys = zeroblob(length(keys))", {"capture_unreadable"}),
        ("UPDATE lists SET ends = x'0000'", {"capture_unreadable"}),
        ("UPDATE captures SET body = x'c1'", {"capture_unreadable"}),
        ("UPDATE captures SET message_count = 9", {"capture_unreadable"}),
        ("UPDATE captures SET source_id = zeroblob(32)", {"capture_unreadable", "source_id"}),
    ],
)
def test_every_damage_is_named_and_never_raises_for_segments(stores: Stores, statement: str, sorts: set[str]):
    capture = put(stores.residue, GROUPS, side=make_side(a=b"1"))
    raw(stores, statement)
    assert {one.sort for one in stores.residue.fsck()} == sorts
    if "list_damaged" in sorts:
        with pytest.raises(StoreDamaged):
            stores.residue.segments(capture)
    else:
        for segment in stores.residue.segments(capture):
            assert segment.data is None or isinstance(segment.data, bytes)
    if "c1" in statement:
        assert stores.residue.captures() == ()
        with pytest.raises(StoreDamaged):
            stores.residue.capture(capture)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_flipped_byte_of_the_file_is_survived(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject):
    folder = tmp_path_factory.mktemp("flip")
    with open_stores(folder) as stores:
        capture = put(stores.residue, GROUPS, side=make_side(a=b"1"))
    whole = bytearray((folder / "residue.db").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (folder / "residue.db").write_bytes(whole)
    with open_stores(folder) as stores:
        try:
            list(stores.residue.fsck())
            for number, segment in enumerate(stores.residue.segments(capture)):
                if segment.data is not None and segment_digest(segment.records()) == segment.digest:
                    assert segment.digest != segment_digest(GROUPS[number]) or segment.data == b"".join(GROUPS[number])
        except StoreDamaged:
            pass  # Said, not guessed: that is all that can be asked of a torn file.


# --- races and kills --------------------------------------------------------------------------------------

RACE = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from clew.store.opening import open_stores
from store_making import make_groups, put
with open_stores(Path(sys.argv[1])) as stores:
    print("up", flush=True)
    sys.stdin.readline()
    print(put(stores.residue, make_groups(300)))
"""


def run(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_two_writers_of_one_capture_end_with_one(tmp_path: Path):
    children = [run(RACE, str(tmp_path), str(Path(__file__).parents[1])) for _ in range(2)]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
    outputs = {child.communicate(timeout=120)[0] for child in children}
    assert outputs == {b"1\n"}
    with open_stores(tmp_path) as stores:
        assert [row.id for row in stores.residue.captures()] == [1]
        assert bytes_of(stores.residue, CaptureId(1)) == b"".join(r for g in make_groups(300) for r in g)
        assert list(stores.residue.fsck()) == []


def test_a_reader_never_sees_half_a_capture(stores: Stores):
    with open_stores(stores.data) as reader:
        first = put(stores.residue, GROUPS[:30])
        seen: list[int] = []

        def segments() -> Iterator[NewSegment]:
            for segment in make_segments(GROUPS):
                seen.append(len(reader.residue.captures()))
                assert bytes_of(reader.residue, first)
                yield segment

        stores.residue.put_capture(make_new(GROUPS), segments())
        assert set(seen) == {1}
        assert len(reader.residue.captures()) == 2


@pytest.mark.usefixtures("small_packs")
def test_reading_goes_on_while_packs_are_written_anew(stores: Stores):
    with open_stores(stores.data) as other:
        gone = put(
            stores.residue, [group for pair in zip(GROUPS, make_groups(60, name="x"), strict=True) for group in pair]
        )
        capture = put(stores.residue, GROUPS, session="other")
        reading = stores.residue.segments(capture)
        data = [next(reading).data]
        other.residue.forget([gone])
        data += [segment.data for segment in reading]
        assert data == [b"".join(group) for group in GROUPS]


def test_segments_may_be_made_from_the_store_itself(stores: Stores):
    first = put(stores.residue, GROUPS)

    def copied() -> Iterator[NewSegment]:
        for segment in stores.residue.segments(first):
            assert segment.data is not None
            yield NewSegment(segment.key, segment.digest, segment.lengths, segment.data, segment.end_of_source)

    second = stores.residue.put_capture(make_new(GROUPS, session="copy"), copied())
    assert bytes_of(stores.residue, second) == WHOLE


KILL = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from clew.platform import faults
from clew.store import packing, eviction
from clew.store.opening import open_stores
from store_making import make_groups, make_side, put
packing.PACK_SIZE = eviction.PACK_SIZE = 2048
with open_stores(Path(sys.argv[1])) as stores:
    stores.residue.captures()
    faults.install(sys.argv[3] + "=kill")
    if sys.argv[4] == "put":
        put(stores.residue, make_groups(60), side=make_side(a=b"1"))
    else:
        stores.residue.forget([1])
"""


@pytest.mark.parametrize(
    ("act", "point", "done"),
    [
        ("put", "store.after-pack", False),
        ("put", "store.after-pack@3", False),
        ("put", "store.before-commit", False),
        ("put", "store.after-commit", True),
        ("forget", "store.before-sweep", False),
        ("forget", "store.after-pack", False),
        ("forget", "store.before-commit", False),
        ("forget", "store.after-commit", True),
    ],
)
@pytest.mark.usefixtures("small_packs")
def test_killed_anywhere_a_capture_is_whole_or_not_there(stores: Stores, act: str, point: str, done: bool):
    groups = [group for pair in zip(GROUPS, make_groups(60, name="x"), strict=True) for group in pair]
    first = put(stores.residue, groups[:40], session="first")
    put(stores.residue, GROUPS[:10], session="third")
    stores.close()
    child = run(KILL, str(stores.data), str(Path(__file__).parents[1]), point, act)
    assert child.communicate(timeout=60) == (b"", None)
    assert child.returncode == -9
    expected = {"put": 2 + done, "forget": 2 - done}[act]
    assert len(stores.residue.captures()) == expected
    assert list(stores.residue.fsck()) == []
    if act == "put":
        assert bytes_of(stores.residue, put(stores.residue, GROUPS, side=make_side(a=b"1"))) == WHOLE
    else:
        stores.residue.forget([first])
        assert [row.session_id for row in stores.residue.captures()] == ["third"]
        assert bytes_of(stores.residue, CaptureId(2)) == b"".join(r for group in GROUPS[:10] for r in group)


def test_every_fault_point_of_the_room_is_killed_at():
    played = {"store.after-pack", "store.before-commit", "store.after-commit", "store.before-sweep"}
    played |= {"store.in-migration", "store.before-created"}
    assert {name for name in faults.points() if name.startswith("store.")} == played


def test_a_worker_that_fails_fails_the_capture(stores: Stores, monkeypatch: pytest.MonkeyPatch):
    compress: Callable[..., bytes] = pack.Compressor.compress
    calls = 0

    def fail(self: pack.Compressor, lengths: Any, parts: Any) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise MemoryError("no more")
        return compress(self, lengths, parts)

    monkeypatch.setattr(packing, "PACK_SIZE", 2048)
    monkeypatch.setattr(pack.Compressor, "compress", fail)
    with pytest.raises(MemoryError, match="no more"):
        put(stores.residue, GROUPS)
    assert stores.residue.captures() == ()
    assert stores.residue.heads(CLAUDE, make_key(GROUPS[0])) == ()
    assert bytes_of(stores.residue, put(stores.residue, GROUPS)) == WHOLE
