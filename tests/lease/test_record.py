"""Session records: what is readable, and that the rest is carried byte for byte."""

from __future__ import annotations

import json

import msgspec
import pytest

from clew.lease.lease import Checkpoint
from clew.lease.record import (
    AccountHome,
    BareRecord,
    Location,
    Record,
    UnreadableRecord,
    launch_fault,
    open_record,
    read_record,
    record_fault,
    store_record,
    strand_of,
)
from clew.lineage.strand import Strand, load_strand, store_strand
from lease_cases import ACCOUNT, CODEX, NOW, PLACE, SESSION, blank, bound, committed, link, live, reserved, with_lease


@pytest.mark.parametrize("record", [blank(), reserved(), committed(), live()])
def test_a_record_comes_back(record: Record) -> None:
    full = msgspec.structs.replace(record, options=(("model", "x"), ("mode", "")), launch_arguments=("--a", "b c"))
    assert read_record(store_record(full)) == full
    assert store_record(read_record(store_record(full))) == store_record(full)


def test_unknown_members_of_a_record_and_its_lease_survive() -> None:
    data = store_record(live())
    wide = data.replace(b'"lease":{', b'"lease":{"mood":[1.50],')[:-1] + b',"x":{"y":1e9}}'
    record = read_record(wide)
    assert isinstance(record, Record)
    again = store_record(record)
    assert b'"mood":[1.50]' in again
    assert b'"x":{"y":1e9}' in again
    assert read_record(again) == record


def test_a_record_is_a_strand_with_more() -> None:
    data = store_record(live())
    strand = load_strand(data)
    assert strand.chain == strand_of(live()).chain
    assert store_strand(strand) == data


def test_a_bare_strand_becomes_a_record_at_fence_0() -> None:
    strand = Strand(SESSION, link().handle.namespace, bound(blank(), link(fence=0)).chain, (("note", '"x"'),))
    bare = read_record(store_strand(strand))
    assert isinstance(bare, BareRecord)
    assert store_record(bare) == store_strand(strand)
    record = open_record(bare, PLACE, ACCOUNT, NOW)
    assert record.lease.fence == 0
    assert read_record(store_record(record)) == record
    assert b'"note":"x"' in store_record(record)


def test_s74_a_newer_record_is_present_and_says_so() -> None:
    data = store_record(live()).replace(b'"schema":1', b'"schema":7')
    record = read_record(data)
    assert isinstance(record, UnreadableRecord)
    assert record.newer == 7
    assert store_record(record) == data


@pytest.mark.parametrize(
    "broken",
    [
        with_lease(live(), proven_link_id="nobody"),
        with_lease(reserved(), proven_link_id="nobody"),
        with_lease(live(), owner=None),
        with_lease(live(), proven_link_id=None),
        with_lease(live(), fence=2),
        with_lease(live(), stage="new_owner_proving"),
        with_lease(reserved(), reserved_token=None),
        with_lease(live(), claim="released"),
        with_lease(blank(), claim="reserved", reserved_token="t"),
        bound(blank(), link(fence=1)),
        msgspec.structs.replace(bound(blank(), link(fence=0)), namespace=CODEX),
        msgspec.structs.replace(blank(), account_home=AccountHome("X", "relative/path")),
        msgspec.structs.replace(blank(), options=(("a", "1"), ("a", "2"))),
    ],
)
def test_s75_an_invalid_record_is_never_granted_and_carried_as_it_is(broken: Record) -> None:
    assert record_fault(broken)
    with pytest.raises(AssertionError):
        store_record(broken)
    data = _raw(broken)
    read = read_record(data)
    assert isinstance(read, UnreadableRecord)
    assert read.newer is None
    assert store_record(read) == data


def _raw(record: Record) -> bytes:
    """What a faulty writer would have stored: a sound record with this one's members put in."""
    stored = json.loads(store_record(blank()))
    stored["lease"] = json.loads(msgspec.json.encode(record.lease))
    del stored["lease"]["extra"]
    stored["account_home"] = msgspec.to_builtins(record.account_home)
    stored["options"] = msgspec.to_builtins(record.options)
    strand = json.loads(store_strand(strand_of(record)))
    stored["namespace"], stored["chain"] = strand["namespace"], strand["chain"]
    return json.dumps(stored, indent=1).encode()


def test_s75_a_broken_checkpoint_makes_the_record_unreadable() -> None:
    good = store_record(with_lease(live(), checkpoint=Checkpoint(1, 2)))
    for wrong in (b'{"epoch":0,"sequence":2}', b'{"epoch":1}', b'"1/2"', b'{"epoch":1,"sequence":-1}'):
        data = good.replace(b'{"epoch":1,"sequence":2}', wrong)
        assert data != good
        read = read_record(data)
        assert isinstance(read, UnreadableRecord)
        assert store_record(read) == data


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b'{"schema":1}', b"\xff\x00", b'{"schema":"1"}'])
def test_bytes_that_are_no_record(data: bytes) -> None:
    read = read_record(data)
    assert isinstance(read, UnreadableRecord)
    assert store_record(read) == data


def test_a_launch_is_bounded() -> None:
    assert launch_fault({"A": "1"}, ["x"], [("a", "b")]) == ""
    assert launch_fault({f"V{n}": "" for n in range(257)}, [], [])
    assert launch_fault({"A": "x" * 65537}, [], [])
    assert launch_fault({"A=B": "x"}, [], [])
    assert launch_fault({"A": "x\0"}, [], [])
    assert launch_fault({}, ["x"] * 257, [])
    assert launch_fault({}, ["x\0"], [])
    assert launch_fault({}, [], [(f"o{n}", "") for n in range(33)])
    assert launch_fault({}, [], [("", "x")])


def test_a_scope_is_host_container_and_workspace() -> None:
    assert PLACE.scope_key == "h1\0\0/work/place"
    assert Location("h1", "/work/place", "folder", "box").scope_key != PLACE.scope_key
