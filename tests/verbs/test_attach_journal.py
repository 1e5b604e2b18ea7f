"""Journals that are damaged, or of a newer clew."""

import msgspec
import pytest

from clew.verbs.journaling import read_journal
from live_world import SESSION, fill, rewrite


def test_a_damaged_journal_keeps_its_sound_part_and_is_rebuilt(world, another):
    fill(world, "one", "two")
    rows = world.leases.store.journal_rows(SESSION)
    broken = [msgspec.structs.replace(row, body=b"{}") if row.sequence == 7 else row for row in rows]
    rewrite(world, broken)
    done = another().attach()
    assert (done.report.trigger, done.report.reset, done.report.epoch) == ("malformed_row", True, 2)
    events = [row.body.detail for row in done.page if row.kind == "lifecycle" and row.body.event == "repaired"]
    assert events
    assert "rows dropped" in events[0]
    assert done.page[0].body.reason == "repaired: malformed_row"


def test_a_journal_of_a_newer_clew_is_left_alone(world, another):
    fill(world, "one")
    rows = list(world.leases.store.journal_rows(SESSION))
    newer = rows[2].body.replace(b'"schema":1', b'"schema":9')
    rows[2] = msgspec.structs.replace(rows[2], body=newer)
    rewrite(world, rows)
    before = read_journal(world.leases, SESSION)
    two = another()
    done = two.attach()
    assert done.report.trigger == "newer_schema"
    assert done.report.imported >= 1
    done.seat.send("two")
    done.seat.release()
    assert read_journal(two.leases, SESSION) == before
    assert len(two.leases.store.journals(SESSION)) == 2


def test_an_unknown_error_of_the_store_is_raised_as_it_is(world, monkeypatch):
    world.make_thread()

    def broken(*_, **__):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(world.leases.store, "put_record", broken)
    with pytest.raises(ZeroDivisionError):
        world.attach()
