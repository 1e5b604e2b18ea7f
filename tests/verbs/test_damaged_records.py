"""Rows of the records that are damaged, one at a time: each is told, and nothing else is held up by it."""

import shutil
from datetime import UTC, datetime

import apsw
import msgspec
import pytest

from clew.errors import Conflict, LeaseError, StoreDamaged
from clew.formats.protocol import Home
from clew.formats.registry import get_format
from clew.ids import ThreadId
from clew.lineage.thread import Thread
from clew.platform.clock import FixedClock
from clew.verbs import lineage_rows as rows
from clew.verbs.attaching import plan_attach
from clew.verbs.check_store import check_store
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.doctor import doctor
from clew.verbs.log import log
from clew.verbs.own import disown, own_session
from clew.verbs.ps import ps
from clew.verbs.release import plan_release
from clew_corpus import own_case


@pytest.fixture
def case():
    return own_case("claude", "simple")


@pytest.fixture
def make(case, tmp_path):
    """A home whose session was opened once and carried once, and is free; each call is another process' view of it."""
    home = case.copy_home(tmp_path / "home")

    def context():
        clock = FixedClock(datetime(2026, 12, 1, tzinfo=UTC))
        return Context(Home(home), tmp_path / "data", cwd=tmp_path, clock=clock)

    with context() as ctx:
        owned = own_session(ctx, get_format("claude"), case.session_id, str(tmp_path))
        disown(ctx, owned, "the test is done with it")
        convert(ctx, case.session_id, to="codex")
    context.home = home
    return context


def spoil(make, *statements):
    with make() as ctx:
        path = ctx.data / "records.db"
    with apsw.Connection(str(path)) as raw:
        for statement in statements:
            raw.execute(statement)
    raw.close()


def codex_files(make):
    return sorted(make.home.glob(".codex/sessions/**/*.jsonl"))


BROKEN = {
    "no JSON": "body = x'ff00'",
    "empty": "body = x''",
    "another shape": "body = CAST('[]' AS BLOB)",
    "another fence in its row": "fence = 77",
    "another claim in its row": "claim = 'live'",
}


@pytest.mark.parametrize("way", BROKEN)
def test_an_unreadable_record_is_refused_everywhere_and_told(make, case, way):
    spoil(make, f"UPDATE strands SET {BROKEN[way]} WHERE agent = 'claude'")
    with make() as ctx:
        assert [row.state for row in ps(ctx)] == ["unreadable"]
        plan = plan_attach(ctx, case.session_id)
        assert (plan.decision, plan.reason, plan.fence_now > 0) == ("refused", "record_unreadable", True)
        assert [one.sort for one in check_store(ctx)] == ["record_unreadable"]
        assert any(one.level == "problem" and "cannot be read" in one.found for one in doctor(ctx))
        for act in (
            lambda: plan_release(ctx, case.session_id),
            lambda: own_session(ctx, get_format("claude"), case.session_id, "/"),
        ):
            with pytest.raises(LeaseError) as refused:
                act()
            assert refused.value.concerns["reason"] == "record_unreadable"
        assert log(ctx, case.session_id).strands


def test_nothing_is_made_of_a_session_whose_record_cannot_be_read(make, case):
    """A refused conversion leaves no file in the other agent's home."""
    before = codex_files(make)
    spoil(make, "UPDATE strands SET body = x'ff00' WHERE agent = 'claude'")
    for options in ({}, {"new": True}, {"dry_run": True}):
        with make() as ctx, pytest.raises(LeaseError) as refused:
            convert(ctx, case.session_id, to="codex", **options)
        assert refused.value.concerns["reason"] == "record_unreadable"
        assert refused.value.concerns["session"] == case.session_id
    assert codex_files(make) == before


def test_a_thread_whose_row_is_gone_is_made_again_from_its_strands(make, case):
    spoil(make, "DELETE FROM threads")
    with make() as ctx:
        assert {one.sort for one in check_store(ctx)} == {"thread_missing"}
        assert len(log(ctx, case.session_id).strands) == 2
        disown(ctx, own_session(ctx, get_format("claude"), case.session_id, "/"), "done")
        assert list(check_store(ctx)) == []
    spoil(make, "DELETE FROM threads")
    with make() as ctx:
        made = convert(ctx, case.session_id, to="codex", new=True)
        assert {row.session_id for row in log(ctx, case.session_id).strands} >= {made.to.session_id}
        assert list(check_store(ctx)) == []


def test_edges_and_operations_that_cannot_be_read_are_told_and_in_nobodys_way(make, case):
    spoil(make, "UPDATE edges SET body = x'00'", "UPDATE operations SET body = x'00', state = 'pending'")
    with make() as ctx:
        assert {one.sort for one in check_store(ctx)} == {"edge_unreadable", "operation_unreadable"}
        assert log(ctx, case.session_id).unread == 1
        disown(ctx, own_session(ctx, get_format("claude"), case.session_id, "/"), "done")


@pytest.mark.parametrize("number", [2**63 - 1, 2**53 + 1, -1])
@pytest.mark.parametrize("column", ["grants", "highest_fence", "fence_floor"])
def test_impossible_numbers_of_the_store_are_damage_and_no_defect(make, case, column, number):
    spoil(make, f"UPDATE store SET {column} = {number}")
    with make() as ctx:
        with pytest.raises(StoreDamaged) as damaged:
            ps(ctx)
        assert damaged.value.hint
        assert [one.sort for one in check_store(ctx)] == ["file_damaged"]


def test_a_fence_beyond_all_bounds_in_one_row_does_not_spoil_the_floor(make, case):
    spoil(make, f"UPDATE strands SET fence = {2**63 - 1} WHERE agent = 'codex'")
    with make() as ctx:
        assert ctx.stores.records.mark_restored().fence_floor < 2**53
        disown(ctx, own_session(ctx, get_format("claude"), case.session_id, "/"), "done")


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1])
@pytest.mark.parametrize(
    ("column", "sorts"),
    [
        ("threads SET created_at", ["time_impossible"]),
        ("threads SET updated_at", ["time_impossible"]),
        ("strands SET created_at", ["time_impossible", "time_impossible"]),
        ("strands SET updated_at", ["time_impossible", "time_impossible"]),
        ("edges SET at", ["time_impossible"]),
    ],
)
def test_a_time_that_no_calendar_holds_is_told_and_in_nobodys_way(make, case, column, sorts, number):
    spoil(make, f"UPDATE {column} = {number}")
    with make() as ctx:
        assert [one.sort for one in check_store(ctx)] == sorts
        assert ps(ctx) == []
        assert len(log(ctx, case.session_id).strands) == 2
        assert plan_attach(ctx, case.session_id).decision != "refused"
        disown(ctx, own_session(ctx, get_format("claude"), case.session_id, "/"), "done")
        convert(ctx, case.session_id, to="codex")


@pytest.mark.parametrize("opened", [("claude", "codex"), ("codex", "claude"), ("codex",)])
@pytest.mark.parametrize("way", ["claude", "codex"])
def test_after_lost_records_both_sessions_go_on_and_come_together_again(make, case, opened, way):
    with make() as ctx:
        (codex,) = [row.session_id for row in log(ctx, case.session_id).strands if row.agent == "codex"]
    shutil.rmtree(ctx.data)
    ids = {"claude": case.session_id, "codex": codex}
    with make() as ctx:
        owned = [own_session(ctx, get_format(agent), ids[agent], "/") for agent in opened]
    for dry_run in (True, False):
        with make() as ctx:
            other = "codex" if way == "claude" else "claude"
            made = convert(ctx, ids[way], to=other, dry_run=dry_run)
            assert made.to.session_id == ids[other]
    with make() as ctx:
        drawn = [log(ctx, session_id) for session_id in ids.values()]
        assert drawn[0] == drawn[1]
        assert {row.session_id for row in drawn[0].strands} == set(ids.values())
        assert [row.id for row in ctx.stores.records.threads()] == [drawn[0].thread]
        assert list(check_store(ctx)) == []
        for one in owned:
            disown(ctx, one, "done")


def test_what_another_process_brought_together_meanwhile_is_seen(make, case):
    with make() as ctx:
        claude, codex = get_format("claude"), get_format("codex")
        joined = rows.find_thread(ctx, claude, case.session_id)
        (other,) = [s.chain.head.handle.native_id for s in joined.thread.strands if s.namespace.agent == "codex"]
        stale = msgspec.structs.replace(joined, thread=Thread(joined.thread.thread_id, joined.thread.strands[:1]))
        assert rows.join_thread(ctx, stale, codex, other) == joined
        assert rows.join_thread(ctx, None, codex, other) == joined
        assert rows.join_thread(ctx, joined, codex, "of no thread") is joined
        ctx.stores.records.put_thread(ThreadId("t0"), b"{}", expected=None, now=ctx.clock.now())
        ctx.stores.records.join_thread(ThreadId("t0"), joined.thread.thread_id)
        with pytest.raises(Conflict):
            rows.save_thread(ctx, joined, joined)


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_strand_that_lies_in_no_known_thread_comes_back_into_its_own(make, case, agent):
    spoil(make, f"UPDATE strands SET thread = '' WHERE agent = '{agent}'")
    with make() as ctx:
        convert(ctx, case.session_id, to="codex")
        assert len(log(ctx, case.session_id).strands) == 2
        assert list(check_store(ctx)) == []
