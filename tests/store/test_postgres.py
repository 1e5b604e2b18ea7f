"""The records on a PostgreSQL server: made, shared, lost, restored; and what is said of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clew.errors import ClewError, Conflict, InDoubt, SchemaTooNew, StoreDamaged, StoreError, StoreLocked, UsageError
from clew.ids import NativeId
from clew.platform import faults
from clew.store.address import read_address
from clew.store.opening import Stores, open_stores
from clew.store.record_protocol import FENCE_MOVED, RecordStore
from clew.store.records import SqlRecords
from record_making import CLAUDE, NOW, SESSION, THREAD, begin, place, places, put, put_operation, rows

psycopg = pytest.importorskip("psycopg")
from clew.store.postgres import Postgres  # noqa: E402 - only where there is a driver

postgres = pytest.mark.postgres
OTHER = "session-0002"


def told(error: ClewError) -> str:
    """Everything that is shown of an error, with -v as well."""
    return "".join(traceback.format_exception(error)) + error.hint + str(error.as_dict())


def tables(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Runs a statement in the schema of a store, as somebody else."""
    address = read_address(url)
    with psycopg.connect(address.conninfo, autocommit=True) as raw:
        raw.execute(f"SET search_path TO {address.schema}".encode())
        cursor = raw.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def kill_connections(url: str, schema: str) -> None:
    """Ends every connection that works in this schema, as a restart of the server does."""
    with psycopg.connect(read_address(url).conninfo, autocommit=True) as raw:
        raw.execute(
            b"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            b"WHERE application_name = %s AND pid <> pg_backend_pid()",
            (schema,),
        )


@pytest.fixture
def named_url(server_url: str) -> str:
    """A store whose connections can be told from those of other tests."""
    return f"{server_url}&application_name={read_address(server_url).schema}"


def together(*acts: Callable[[], Any]) -> list[Any]:
    """Runs acts at once, each in a thread, and returns what each returned or raised."""
    results: list[Any] = [None] * len(acts)

    def run(number: int) -> None:
        try:
            results[number] = acts[number]()
        except ClewError as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(acts))]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
        assert not one.is_alive()
    return results


# --- without a server -------------------------------------------------------------------------------------


def test_opening_connects_to_nothing(tmp_path: Path):
    with open_stores(tmp_path / "data", url="postgresql://u:geheim@127.0.0.1:1/db") as stores:
        assert stores.has_records
    assert list(tmp_path.iterdir()) == []


def test_opening_imports_no_driver():
    code = (
        "import sys; from pathlib import Path; from clew.store.opening import open_stores\n"
        "open_stores(Path('/nowhere'), url='postgresql://h/db').close()\n"
        "open_stores(Path('/nowhere')).records\n"
        "print('psycopg' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert done.stdout == b"False\n"


def test_without_the_driver_the_hint_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "clew.store.postgres")
    with open_stores(tmp_path, url="postgresql://u:geheim@h/db") as stores, pytest.raises(UsageError) as caught:
        stores.records.threads()
    assert "clew[server]" in caught.value.hint
    assert "geheim" not in told(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:geheim@127.0.0.1:1/db",
        "postgresql://u@127.0.0.1:1/db?nonsense=geheim",
        "postgresql://u:ge%zzheim@h/db",
    ],
)
def test_a_server_that_does_not_answer_is_told_without_secrets(tmp_path: Path, url: str):
    with open_stores(tmp_path, url=url) as stores, pytest.raises(StoreError) as caught:
        stores.records.threads()
    assert caught.value.hint
    assert "heim" not in told(caught.value)


# --- the connection ---------------------------------------------------------------------------------------


@postgres
def test_a_wrong_password_is_not_shown(tmp_path: Path, server_url: str):
    address = read_address(server_url)
    right = address.secrets[0]
    wrong = server_url.replace(right, "geheim%20wort")
    with open_stores(tmp_path, url=wrong) as stores, pytest.raises(StoreError) as caught:
        stores.records.threads()
    assert "password" in str(caught.value)
    for secret in ("geheim", right):
        assert secret not in told(caught.value)


@postgres
def test_a_commit_is_on_the_disk(server: Stores):
    server.records.put_thread(THREAD, b"", expected=None, now=NOW)
    assert server.sql.execute("SHOW synchronous_commit") == [("on",)]
    assert server.sql.execute("SHOW transaction_isolation") == [("read committed",)]


@postgres
def test_a_connection_that_was_lost_meanwhile_is_made_anew(tmp_path: Path, named_url: str):
    schema = read_address(named_url).schema
    with open_stores(tmp_path, url=named_url) as stores:
        put(stores.records)
        acts: list[Callable[[], Any]] = [
            lambda: stores.records.strand(SESSION),
            lambda: put(stores.records, expected=1, fence=1, claim="live"),
            lambda: stores.records.put_lease(SESSION, fence=1, claim="live", body=b"", expected=2, now=NOW),
            lambda: stores.records.state(),
            lambda: stores.records.strands(),
        ]
        for act in acts:
            opened = stores.sql.opened
            kill_connections(named_url, schema)
            act()
            assert stores.sql.opened != opened


@postgres
def test_a_connection_that_is_lost_in_the_middle_writes_nothing(tmp_path: Path, named_url: str):
    schema = read_address(named_url).schema

    def cut(records: RecordStore) -> None:
        with records.transaction():
            put(records, expected=1, fence=1, claim="live")
            kill_connections(named_url, schema)
            put_operation(records)

    with open_stores(tmp_path, url=named_url) as stores:
        put(stores.records)
        with pytest.raises(StoreError) as caught:
            cut(stores.records)
        assert not isinstance(caught.value, InDoubt)
        assert caught.value.hint
        row = stores.records.strand(SESSION)
        assert row is not None
        assert row.revision == 1
        assert stores.records.operations() == ()


@postgres
def test_a_connection_that_is_lost_while_committing_leaves_it_in_doubt(tmp_path: Path, named_url: str):
    schema = read_address(named_url).schema
    with open_stores(tmp_path, url=named_url) as stores:
        put(stores.records)
        hooks = {"postgres__before_commit": lambda: kill_connections(named_url, schema)}
        with faults.installed(**hooks), pytest.raises(InDoubt) as caught:
            put(stores.records, expected=1, fence=1, claim="live")
        assert caught.value.hint
        assert put(stores.records, expected=1, fence=1, claim="live") == 2


@postgres
def test_a_statement_that_waits_too_long_says_who_is_meant(tmp_path: Path, server_url: str):
    impatient = Postgres(read_address(server_url), timeout_s=1)
    with open_stores(tmp_path, url=server_url) as stores:
        put(stores.records)
        with stores.records.transaction():
            stores.records.expect_fence(SESSION, 0)
            with pytest.raises(StoreLocked) as caught:
                SqlRecords(impatient).put_lease(SESSION, fence=0, claim="live", body=b"", expected=1, now=NOW)
    assert caught.value.hint
    impatient.close()


# --- the schema -------------------------------------------------------------------------------------------


@postgres
def test_many_may_make_the_schema_at_once(server_url: str):
    stores = [Postgres(read_address(server_url)) for _ in range(8)]
    found = together(*[lambda one=one: one.execute("SELECT store_id FROM store") for one in stores])
    assert len({row for (row,) in found}) == 1
    for one in stores:
        one.close()


@postgres
def test_a_schema_of_a_newer_clew_is_read_and_not_written(tmp_path: Path, server_url: str):
    with open_stores(tmp_path, url=server_url) as stores:
        begin(stores.records, 2)
        tables(server_url, "UPDATE clew_schema SET version = 99")
        with pytest.raises(SchemaTooNew):
            put(stores.records, expected=1)
    with open_stores(tmp_path, url=server_url) as stores:
        assert stores.records.strand(SESSION) is not None
        assert places(stores.records.journal_rows(SESSION)) == [(1, 1), (1, 2)]
        writes: list[Callable[[], Any]] = [
            lambda: put(stores.records, expected=1),
            lambda: put_operation(stores.records),
            lambda: stores.records.append_journal(SESSION, rows(1, 3, 1), last=place(1, 2), fence=1),
            lambda: stores.records.mark_restored(),
        ]
        for write in writes:
            with pytest.raises(SchemaTooNew) as caught:
                write()
            assert caught.value.hint == "Update clew."
    with open_stores(tmp_path, url=server_url) as stores:
        tables(server_url, "ALTER TABLE threads RENAME TO later")
        with pytest.raises(SchemaTooNew):
            stores.records.threads()


@postgres
def test_migrations_run_in_order_once_and_all_or_nothing(tmp_path: Path, server_url: str):
    def step(number: int, text: str) -> None:
        (tmp_path / f"{number:04}_step.sql").write_text(text)

    def opened() -> Postgres:
        return Postgres(read_address(server_url), migrations=tmp_path)

    step(1, "CREATE TABLE one (a BIGINT); INSERT INTO one VALUES (1);")
    first = opened()
    assert first.execute("SELECT a FROM one") == [(1,)]
    step(2, "ALTER TABLE one ADD COLUMN b BIGINT; UPDATE one SET b = a + 1;")
    step(3, "DELETE FROM one; INSERT INTO nowhere VALUES (1);")
    second = opened()
    with pytest.raises(StoreError):
        second.execute("SELECT a FROM one")
    assert tables(server_url, "SELECT * FROM one") == [(1,)]
    step(3, "CREATE TABLE three (c BIGINT);")
    with faults.installed("postgres.in-migration@2=raise"), pytest.raises(faults.InjectedFault):
        second.execute("SELECT a FROM one")
    assert tables(server_url, "SELECT version FROM clew_schema") == [(1,)]
    assert second.execute("SELECT a, b FROM one") == [(1, 2)]
    assert second.execute("SELECT count(*) FROM three") == [(0,)]
    assert tables(server_url, "SELECT version FROM clew_schema") == [(3,)]
    for one in (first, second):
        one.close()


@postgres
def test_a_schema_that_is_there_needs_no_right_to_make_one(tmp_path: Path, server_url: str):
    with open_stores(tmp_path, url=server_url) as stores:
        put(stores.records)
    schema = read_address(server_url).schema
    role = f"{schema}_reader"
    tables(
        server_url,
        f"CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA {schema} TO {role}; "
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
    )
    server = read_address(server_url)
    theirs = server_url.replace(f"clew:{server.secrets[0]}@", f"{role}:x@")
    try:
        with open_stores(tmp_path / "other", url=theirs) as stores:
            assert stores.records.strand(SESSION) is not None
            with pytest.raises(StoreError) as caught:
                put(stores.records, expected=1)
            assert "right" in caught.value.hint
    finally:
        tables(server_url, f"DROP OWNED BY {role}; DROP ROLE {role}")


# --- many writers -----------------------------------------------------------------------------------------


@postgres
def test_of_two_adoptions_of_one_conversation_the_second_sees_the_first(tmp_path: Path, server_url: str):
    root = 'claude-jsonl/claude:"same"'
    barrier = threading.Barrier(8)
    with open_stores(tmp_path, url=server_url) as stores:
        stores.records.put_thread(THREAD, b"", expected=None, now=NOW)

    def adopt(number: int) -> str | None:
        with open_stores(tmp_path / str(number), url=server_url) as own:
            store = own.records
            store.state()
            barrier.wait(30)
            with store.transaction():
                held = store.strands(root=root)
                if held:
                    return held[0].id
                put(store, f"session-{number:04}", roots=(root,), fence=1, claim="reserved")
                return None

    results = together(*[lambda n=n: adopt(n) for n in range(8)])
    winners = [number for number, found in enumerate(results) if found is None]
    assert len(winners) == 1
    assert {found for found in results if found is not None} == {f"session-{winners[0]:04}"}


@postgres
def test_a_decision_over_a_row_is_not_overtaken(tmp_path: Path, server_url: str):
    with open_stores(tmp_path, url=server_url) as stores:
        put(stores.records)
        put_operation(stores.records)

    def count(number: int) -> None:
        with open_stores(tmp_path / str(number), url=server_url) as own:
            for _ in range(5):
                with own.records.transaction():
                    row = own.records.strand(SESSION)
                    operation = own.records.operation("c\x001")
                    assert row is not None
                    assert operation is not None
                    put(own.records, fence=row.fence + 1, claim="reserved", expected=row.revision)
                    put_operation(own.records, expected=operation.revision)

    assert together(*[lambda n=n: count(n) for n in range(6)]) == [None] * 6
    with open_stores(tmp_path, url=server_url) as stores:
        row = stores.records.strand(SESSION)
        assert row is not None
        assert (row.fence, row.revision) == (30, 31)


@postgres
def test_an_append_waits_for_a_grant_that_is_under_way_and_is_refused(tmp_path: Path, server_url: str):
    with open_stores(tmp_path, url=server_url) as stores, open_stores(tmp_path / "b", url=server_url) as others:
        begin(stores.records, 1)
        mine, theirs = stores.records, others.records
        theirs.state()
        started = threading.Event()
        results: list[Any] = []

        def append() -> None:
            started.set()
            results.append(
                together(lambda: theirs.append_journal(SESSION, rows(1, 2, 1), last=place(1, 1), fence=1))[0]
            )

        other = threading.Thread(target=append)
        with mine.transaction():
            put(mine, fence=2, claim="reserved", expected=1)
            other.start()
            started.wait(10)
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            for _ in range(2000):
                if tables(server_url, waiting)[0][0]:
                    break
        other.join(30)
        assert isinstance(results[0], Conflict)
        assert results[0].code == FENCE_MOVED
        assert places(mine.journal_rows(SESSION)) == [(1, 1)]


@postgres
def test_two_that_wait_for_each_other_are_told_to_try_again(tmp_path: Path, server_url: str):
    barrier = threading.Barrier(2)
    with open_stores(tmp_path, url=server_url) as stores:
        put(stores.records)
        put(stores.records, OTHER)

    def cross(first: str, second: str) -> str:
        with open_stores(tmp_path / first, url=server_url) as own, own.records.transaction():
            own.records.expect_fence(first, 0)
            barrier.wait(30)
            own.records.expect_fence(second, 0)
        return "done"

    results = together(lambda: cross(SESSION, OTHER), lambda: cross(OTHER, SESSION))
    lost = [one for one in results if one != "done"]
    assert len(lost) == 1
    assert isinstance(lost[0], Conflict)
    assert "again" in lost[0].hint


# --- restored, replaced -----------------------------------------------------------------------------------


@postgres
def test_a_server_that_was_put_back_grants_no_fence_twice(tmp_path: Path, server_url: str):
    def fence_of(stores: Stores) -> int:
        row = stores.records.strand(SESSION)
        assert row is not None
        return row.fence

    with open_stores(tmp_path, url=server_url) as stores:
        put(stores.records, fence=1, claim="live")
        for fence in (2, 3, 4):
            stores.records.put_lease(SESSION, fence=fence, claim="live", body=b"", expected=fence - 1, now=NOW)
    assert list(tmp_path.glob("server-*.witness"))
    # What a backup of after the second grant holds.
    tables(server_url, "UPDATE strands SET fence = 2, revision = 2; UPDATE store SET grants = 2, highest_fence = 2")
    with open_stores(tmp_path, url=server_url) as stores:
        assert fence_of(stores) == 2
        floor = stores.records.state().fence_floor
        assert floor > 4
        with pytest.raises(Conflict):
            stores.records.put_lease(SESSION, fence=3, claim="live", body=b"", expected=2, now=NOW)
        stores.records.put_lease(SESSION, fence=floor, claim="live", body=b"", expected=2, now=NOW)
    with open_stores(tmp_path, url=server_url) as stores:
        assert stores.records.state().fence_floor == floor


@postgres
def test_another_database_in_its_place_is_refused(tmp_path: Path, server_url: str):
    with open_stores(tmp_path, url=server_url) as stores:
        put(stores.records, fence=1, claim="live")
    tables(server_url, f"DROP SCHEMA {read_address(server_url).schema} CASCADE")
    with open_stores(tmp_path, url=server_url) as stores, pytest.raises(StoreDamaged) as caught:
        put(stores.records, fence=1, claim="live")
    assert "clew store restored" in caught.value.hint
    with open_stores(tmp_path, url=server_url) as stores:
        floor = stores.records.mark_restored().fence_floor
        put(stores.records, fence=floor, claim="live")
    with open_stores(tmp_path, url=server_url) as stores:
        assert stores.records.state().fence_floor == floor > 1


PUT_BACK = """
    ALTER TABLE store RENAME TO old; CREATE TABLE store (LIKE old INCLUDING ALL); INSERT INTO store SELECT * FROM kept;
    DROP TABLE old; UPDATE strands s SET fence = k.fence, revision = k.revision FROM kept_strands k WHERE k.id = s.id
"""


@postgres
@pytest.mark.parametrize("how", ["dump", "timeline", "server"])
def test_a_server_that_was_put_back_is_noticed_by_a_host_that_never_saw_it(tmp_path: Path, server_url: str, how: str):
    """By the number of its table after a dump, by its timeline after a recovery, by its name after a move."""
    with open_stores(tmp_path / "a", url=server_url) as stores:
        put(stores.records, fence=1, claim="live")
        tables(server_url, "CREATE TABLE kept AS TABLE store; CREATE TABLE kept_strands AS TABLE strands")
        for fence in (2, 3):
            stores.records.put_lease(SESSION, fence=fence, claim="live", body=b"", expected=fence - 1, now=NOW)
    ((origin,),) = tables(server_url, "SELECT origin FROM store")
    system, timeline, table = origin.split()
    assert len(timeline) == 8
    if how == "dump":
        tables(server_url, PUT_BACK)
    else:
        was = {"timeline": f"{system} 000000FF {table}", "server": f"7 {timeline} {table}"}[how]
        tables(
            server_url,
            f"UPDATE store SET origin = '{was}', grants = 1, highest_fence = 1; UPDATE strands SET fence = 1",
        )
        tables(server_url, "UPDATE strands SET revision = 1, fence = 1")
    with open_stores(tmp_path / "b", url=server_url) as stores:
        floor = stores.records.state().fence_floor
        assert floor > 3
        stores.records.put_lease(SESSION, fence=floor, claim="live", body=b"", expected=1, now=NOW)
    with open_stores(tmp_path / "c", url=server_url) as stores:
        assert stores.records.state().fence_floor == floor


@postgres
def test_a_server_that_does_not_tell_where_it_is_serves_as_well(tmp_path: Path, server_url: str, monkeypatch: Any):
    from clew.store import postgres as module

    monkeypatch.setattr(module, "_ORIGIN", "SELECT nobody_knows()")
    with open_stores(tmp_path, url=server_url) as stores:
        put(stores.records, fence=1, claim="live")
        assert stores.records.state().fence_floor == 0
    assert tables(server_url, "SELECT origin FROM store") == [(None,)]


# --- crashes ----------------------------------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
from clew.platform import faults
from clew.store.opening import open_stores
from record_making import put, put_operation, rows, place, SESSION
with open_stores(Path(sys.argv[1]), url=sys.argv[2]) as stores:
    store = stores.records
    store.state()
    faults.install(sys.argv[3] + "=kill")
    with store.transaction():
        put(store, fence=2, claim="live", expected=1)
        put_operation(store)
        store.rewrite_journal(SESSION, rows(2, 1, 2, fence=2), strand=SESSION, fence=2, expected=place(1, 3))
"""


@postgres
@pytest.mark.parametrize(
    "point", ["journal.after-head", "journal.after-deleted", "postgres.before-commit", "postgres.after-commit"]
)
def test_a_process_killed_anywhere_leaves_all_or_nothing(
    tmp_path: Path, server_url: str, point: str, run_child: Callable[..., subprocess.CompletedProcess[bytes]]
):
    with open_stores(tmp_path, url=server_url) as stores:
        begin(stores.records, 3)
    assert run_child(CHILD, str(tmp_path), server_url, point).returncode == -9
    done = point == "postgres.after-commit"
    with open_stores(tmp_path, url=server_url) as stores:
        row = stores.records.strand(SESSION)
        assert row is not None
        assert row.fence == (2 if done else 1)
        assert (stores.records.operation("c\x001") is not None) == done
        assert stores.records.journal_rows(SESSION) == (rows(2, 1, 2, fence=2) if done else rows(1, 1, 3))
        if not done:
            put(stores.records, fence=2, claim="live", expected=1)


# --- every verb -------------------------------------------------------------------------------------------


@postgres
def test_the_verbs_keep_their_threads_on_the_server(tmp_path: Path, server_url: str):
    import shutil

    sessions = Path(__file__).parents[1] / "fixtures" / "sessions" / "claude" / "tools" / "home"
    shutil.copytree(sessions, tmp_path / "home")
    file = next((tmp_path / "home").glob(".claude/projects/*/*.jsonl"))

    def clew(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        where = ("--root", str(tmp_path / "home"), "--data", str(tmp_path / "data"), "--store", server_url)
        return subprocess.run(
            [sys.executable, "-m", "clew", *where, *arguments],
            capture_output=True,
            timeout=120,
            check=False,
            env={"PATH": os.defpath, "HOME": str(tmp_path)},
        )

    done = clew("--json", "convert", file.stem, "--to", "codex")
    assert done.returncode == 0, done.stderr
    assert clew("ls", "--all").returncode == 0
    assert not (tmp_path / "data" / "records.db").exists()
    with open_stores(tmp_path / "data", url=server_url) as stores:
        assert {row.agent for row in stores.records.strands()} == {"claude", "codex"}
        assert [edge.kind for edge in stores.records.edges()] == ["translated"]
        assert stores.records.strands(agent=CLAUDE, native_id=NativeId(file.stem))
