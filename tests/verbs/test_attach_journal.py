"""Journals that are damaged, or of a newer clew."""

import msgspec
import pytest

from clew.journal.rows import Cursor, Item
from clew.journal.submissions import timeline
from clew.lease.lease import Checkpoint
from clew.verbs.journaling import Page, classify_journal, read_journal, read_page
from live_world import SESSION, change_record, fill, refused, rewrite, with_lease


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


def spoil(world, sequence):
    """Makes one row of the journal unreadable."""
    rows = world.leases.store.journal_rows(SESSION)
    rewrite(world, [msgspec.structs.replace(row, body=b"{}") if row.sequence == sequence else row for row in rows])


def lose_rows(world, behind):
    """Takes the last rows away under the store, as a damaged file does."""
    with world.leases.transaction():
        world.stores.sql.execute("DELETE FROM journal_rows WHERE journal = ? AND sequence > ?", (SESSION, behind))


@pytest.mark.parametrize("behind", [0, 1, 5])
def test_rows_that_are_missing_at_the_end_are_noticed_and_told(world, another, behind):
    ids = fill(world, "one", "two")
    end = Cursor(1, len(read_journal(world.leases, SESSION)))
    lose_rows(world, behind)
    two = another()
    done = two.attach()
    assert done.report.trigger == ("gap" if behind else "bad_anchor")
    assert (done.report.reset, done.report.epoch) == (True, 2)
    assert [b.item.body for b in timeline(done.page) if b.item is not None][-1] == b"heard two"
    assert done.seat.send("three").state == "accepted"
    done.seat.release()
    checkpoint = two.lease.checkpoint
    assert (checkpoint.epoch, checkpoint.sequence) > (end.epoch, end.sequence)
    assert ids


@pytest.mark.parametrize("head", [True, False])
def test_a_journal_that_is_gone_is_no_new_one(world, another, head):
    fill(world, "one")
    lose_rows(world, 0)
    if not head:
        with world.leases.transaction():
            world.stores.sql.execute("DELETE FROM journals WHERE name = ?", (SESSION,))
    done = another().attach()
    assert (done.report.trigger, done.report.epoch) == ("bad_anchor", 2)
    assert done.report.imported >= 1
    done.seat.release()


def test_a_damaged_journal_without_a_history_keeps_its_prefix_in_a_new_epoch_and_can_be_left(world, another):
    """Nobody who read on in the old one takes what follows for its continuation, and the checkpoint moves on."""
    fill(world, "one", "two")
    spoil(world, 5)
    two = another()
    two.adapter.history = lambda handle, home: None
    seat = two.attach().seat
    assert seat.journal.cursor.epoch == 2
    assert [row.sequence for row in seat.journal.rows] == list(range(1, len(seat.journal.rows) + 1))
    seat.release()
    assert two.lease.is_free
    assert two.lease.checkpoint.epoch == 2


def test_a_journal_of_a_newer_clew_that_went_further_does_not_hold_the_session(world, another):
    fill(world, "one", "two", "three")
    rows = list(world.leases.store.journal_rows(SESSION))
    rows[1] = msgspec.structs.replace(rows[1], body=rows[1].body.replace(b'"schema":1', b'"schema":9'))
    rewrite(world, rows)
    two = another()
    two.adapter.history = lambda handle, home: (Item("k1", b"all that is left"),)
    done = two.attach()
    assert (done.report.trigger, done.cursor.epoch) == ("newer_schema", 2)
    done.seat.release()
    # The newer clew goes on in its own journal; what stands in for it is behind.
    change_record(two, lambda record: with_lease(record, checkpoint=Checkpoint(9, 50)))
    two.seat().release()
    assert two.lease.is_free
    assert two.lease.checkpoint == Checkpoint(9, 50)


def test_a_reader_reads_on_and_is_told_to_reload(world, another):
    seat = world.seat()
    seat.send("one")
    two = another()
    page = read_page(two.leases, SESSION)
    assert (page.rows, page.cursor, page.reload) == (seat.journal.rows, seat.journal.cursor, False)
    assert read_page(two.leases, SESSION, page.cursor) == Page((), page.cursor)
    seat.send("two")
    more = read_page(two.leases, SESSION, page.cursor)
    assert page.rows + more.rows == seat.journal.rows
    assert read_page(two.leases, SESSION, page.cursor, limit=1).rows == more.rows[:1]
    for foreign in (Cursor(7, 1), Cursor(1, more.cursor.sequence + 1)):
        again = read_page(two.leases, SESSION, foreign)
        assert (again.rows, again.reload) == (seat.journal.rows, True)
    seat.release()
    spoil(world, 4)
    with refused("journal_unreadable", "corrupt"):
        read_page(two.leases, SESSION)
    assert type(classify_journal(two.leases, SESSION)).__name__ == "Corrupt"
