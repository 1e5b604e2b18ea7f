"""Many sessions as one run: found, sealed, carried, interrupted, resumed."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest

from clew.errors import Refused, RunError, UnwritableContent
from clew.formats.protocol import Home
from clew.formats.registry import get_format
from clew.platform import faults
from clew.platform.clock import FixedClock
from clew.runs.engine import RunOptions, carry_out
from clew.runs.log import SessionRef
from clew.runs.operation import Skipped
from clew.runs.sessions import ThreadLinker, VerbTranslator
from clew.runs.translate import StoredSession, Translated, TranslateOperation
from clew.verbs import lineage_rows as rows
from clew.verbs.context import Context
from clew_corpus import own_cases
from runs.toys import make_settings, tree_of


class Scripted:
    """A translator over names and digests."""

    def __init__(self, digests: dict[str, str]) -> None:
        self.digests = digests
        self.broken: dict[str, Exception] = {}
        self.changed: set[str] = set()
        self.carried: list[str] = []

    def find(self) -> Iterable[StoredSession | Skipped]:
        yield Skipped("bad", "unreadable: no permission")
        for path, digest in self.digests.items():
            yield StoredSession("claude", f"id-{path}", path, digest)

    def translate(self, session: StoredSession) -> Translated | None:
        if session.path in self.broken:
            raise self.broken[session.path]
        if session.path in self.changed:
            return None
        self.carried.append(session.path)
        return Translated(f"new-{session.path}", {"to": {"agent": "codex"}})


def operation(translator: Scripted, **rules: str) -> TranslateOperation:
    return TranslateOperation(translator, source="claude", target="codex", scope=Path("/home/dev"), rules=rules)


def test_what_failed_is_carried_by_the_resume_and_nothing_twice(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    one = Scripted({name: name for name in "abcde"})
    one.broken = {
        "b": Refused("both went on", code="target_diverged"),
        "c": Refused("empty", code="nothing_to_convert"),
        "d": UnwritableContent("an image"),
    }
    one.changed = {"e"}
    first = carry_out(operation(one), settings)
    told = {i.path: (i.classification, i.reason) for i in first.manifest.coverage.failed}
    assert told == {
        "b": ("input", "both went on (target_diverged)"),
        "d": ("input", "an image"),
        "e": ("input", "the session changed after the run was sealed"),
    }
    assert [(i.path, i.reason) for i in first.manifest.coverage.waived] == [("c", "nothing was said in it")]
    assert [i.session for i in first.items.values() if i.session] == [SessionRef("codex", "new-a")]
    assert [s.path for s in first.skipped] == ["bad"]
    two = Scripted(one.digests)
    second = carry_out(operation(two), settings, parent=first.manifest.run_id)
    assert two.carried == ["b", "c", "d", "e"]
    assert second.manifest.terminal_state == "complete"


def test_a_session_that_grew_is_an_input_change_and_goes_by_delta(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    first = carry_out(operation(Scripted({"a": "1", "b": "1"})), settings).manifest.run_id
    grown = Scripted({"a": "1", "b": "2"})
    with pytest.raises(RunError) as caught:
        carry_out(operation(grown), settings, parent=first)
    assert caught.value.code == "input_changed"
    carry_out(operation(grown), settings, RunOptions(delta=True), parent=first)
    assert grown.carried == ["b"]


def test_other_options_are_other_rules(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    first = carry_out(operation(Scripted({"a": "1"})), settings).manifest.run_id
    with pytest.raises(RunError) as caught:
        carry_out(operation(Scripted({"a": "1"}), full="True"), settings, parent=first)
    assert caught.value.code == "rules_changed"


# --- over the verbs ---------------------------------------------------------------------------------------


@pytest.fixture
def ctx(tmp_path: Path) -> Iterable[Context]:
    home = tmp_path / "home"
    for case in own_cases():
        if case.agent == "claude":
            shutil.copytree(case.home, home, symlinks=True, dirs_exist_ok=True)
    with Context(Home(home), tmp_path / "data", cwd=tmp_path, clock=FixedClock()) as opened:
        yield opened


def translated(ctx: Context, **more: str) -> TranslateOperation:
    translator = VerbTranslator(ctx, "claude", "codex", **more)  # type: ignore[arg-type]
    return TranslateOperation(translator, source="claude", target="codex", scope=ctx.home.root)


def test_real_sessions_are_carried_once(ctx: Context, tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "data" / "runs")
    found = [f for f in get_format("claude").locate.find(ctx.home) if f.kind != "helper"]
    assert found
    before = tree_of(tmp_path)
    translated(ctx).resolve()
    assert tree_of(tmp_path) == before, "resolving writes nothing"
    first = carry_out(translated(ctx), settings)
    assert first.manifest.terminal_state == "complete", first.manifest.coverage.failed
    made = {f.id for f in get_format("codex").locate.find(ctx.home)}
    assert {i.session.session_id for i in first.items.values() if i.session} == made
    carried = tree_of(ctx.home.root)
    second = carry_out(translated(ctx), settings, parent=first.manifest.run_id)
    assert len(second.manifest.coverage.reused) == len(first.manifest.coverage.completed)
    again = carry_out(translated(ctx), settings)
    assert again.manifest.terminal_state == "complete"
    assert tree_of(ctx.home.root) == carried, "a second translation continues what is there"


def test_a_session_of_which_nothing_can_be_read_failed_and_an_empty_one_is_passed_over(
    ctx: Context, tmp_path: Path
) -> None:
    folder = next(f for f in get_format("claude").locate.find(ctx.home) if f.kind != "helper").path.parent
    garbage, empty = f"{uuid.UUID(int=1)}", f"{uuid.UUID(int=2)}"
    (folder / f"{garbage}.jsonl").write_bytes(bytes(range(1, 256)) * 3)
    (folder / f"{empty}.jsonl").write_bytes(b"")
    covered = carry_out(translated(ctx), make_settings(tmp_path / "runs")).manifest.coverage
    [failed] = covered.failed
    assert garbage in failed.path
    assert failed.classification == "input"
    assert re.match(rf"nothing of session {garbage} can be read: [1-9]\d* damaged place", failed.reason)
    assert [(empty in i.path, i.reason) for i in covered.waived] == [(True, "nothing was said in it")]


def test_a_session_that_changes_after_the_seal_is_not_carried(ctx: Context, tmp_path: Path) -> None:
    operation = translated(ctx)
    resolve = operation.resolve

    def resolve_then_append() -> object:
        sealed = resolve()
        found = next(f for f in get_format("claude").locate.find(ctx.home) if f.kind != "helper")
        with found.path.open("ab") as file:
            file.write(b'{"type":"summary","summary":"later"}\n')
        return sealed

    operation.resolve = resolve_then_append  # type: ignore[method-assign]
    result = carry_out(operation, make_settings(tmp_path / "runs"))
    assert [i.reason for i in result.manifest.coverage.failed] == ["the session changed after the run was sealed"]


def test_only_the_sessions_of_one_folder(ctx: Context, tmp_path: Path) -> None:
    none = VerbTranslator(ctx, "claude", "codex", folder="/nowhere/at/all")
    assert list(none.find()) == []
    every = [one for one in VerbTranslator(ctx, "claude", "codex").find() if isinstance(one, StoredSession)]
    form = get_format("claude")
    folder = form.read(form.locate.load(next(iter(form.locate.find(ctx.home))), ctx.home)).cwd
    here = list(VerbTranslator(ctx, "claude", "codex", folder=folder).find())
    assert 0 < len(here) <= len(every)


def test_a_session_in_which_an_item_was_done_is_linked_to_the_run(ctx: Context) -> None:
    link = ThreadLinker(ctx)
    link("run-1", "item-1", SessionRef("claude", "5e55"))
    link("run-2", "item-2", SessionRef("claude", "5e55"))
    link("run-1", "item-3", SessionRef("vim", "x"))
    view = rows.find_thread(ctx, get_format("claude"), "5e55")
    assert view is not None
    [strand] = view.thread.strands
    [linked] = strand.chain.links
    assert linked.origin == "created"
    assert [(name, json.loads(value)) for name, value in linked.extra] == [("run", {"run": "run-1", "item": "item-1"})]


def test_killed_between_two_sessions_the_resume_carries_the_rest_once(ctx: Context, tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "data" / "runs", "first")
    child = os.fork()
    if child == 0:
        try:
            faults.install("run.after-checkpoint@1=kill")
            with Context(ctx.home, ctx.data, cwd=tmp_path, clock=FixedClock()) as own:
                carry_out(translated(own), settings)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    before = {f.id for f in get_format("codex").locate.find(ctx.home)}
    assert len(before) == 1
    second = carry_out(translated(ctx), make_settings(tmp_path / "data" / "runs", "second"), parent="first-1")
    assert second.manifest.parent_interrupted
    assert second.manifest.terminal_state == "complete"
    assert len(second.manifest.coverage.reused) == 1
    made = {f.id for f in get_format("codex").locate.find(ctx.home)}
    assert len(made) == len(second.manifest.coverage.selected)
    assert before < made
