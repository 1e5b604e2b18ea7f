"""Carries out a run: admitted and sealed first, then item after item, until its manifest is frozen.

The order is the promise. Nothing exists before admission: no folder, file, session or request. Then the log is opened,
the lineage event, the reused checkpoints and the seal are written, in that order and synced with the seal, so that a
sealed run knows everything it may rely on; only then is the first item dispatched. Each outcome enters the manifest's
builder first and the log at once. However the work ends, the manifest is made once, and goes to the log and the caller.

Not promised: that an item cut off between its work and its checkpoint is not done again. Nothing knows its result.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from clew.errors import ClewError, FormatError, RunError
from clew.platform.faults import declare, fault
from clew.runs import log
from clew.runs.active import RESUMED, ActiveLock
from clew.runs.admission import AGENT_PREFIX, Asked, admit
from clew.runs.builder import ManifestBuilder
from clew.runs.checkpoints import RunState, reusable
from clew.runs.folder import LOCK, LOG, FoundRun, ensure_scope_folder, get_run
from clew.runs.lineage import ResumeLineage, Target
from clew.runs.log import ItemRecord, RunLog, SessionRef
from clew.runs.manifest import RUN_FAILURE_CLASSES, CoverageItem, Execution, Manifest, ManifestError, Repository
from clew.runs.operation import Done, Item, ItemContext, ItemFailed, Skipped, Usage, Waived
from clew.runs.reason import sanitise
from clew.runs.settings import Progress, RunOptions, RunResult, RunSettings

if TYPE_CHECKING:
    from clew.runs.operation import Operation, Sealed, Worker

__all__ = ["Progress", "RunOptions", "RunResult", "RunSettings", "carry_out"]

BEFORE_SEAL = declare("run.before-seal")
AFTER_SEAL = declare("run.after-seal")
BEFORE_CHECKPOINT = declare("run.before-checkpoint")
AFTER_CHECKPOINT = declare("run.after-checkpoint")
BEFORE_END = declare("run.before-end")


def carry_out(
    operation: Operation,
    settings: RunSettings,
    options: RunOptions | None = None,
    *,
    parent: str = "",
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: threading.Event | None = None,
) -> RunResult:
    """Runs an operation to its end and returns the result; with `parent`, goes on from that run.

    Raises before anything exists: NotFoundError or AmbiguousError for the parent, RunError when it is active or the
    admission fails, when nothing is selected, and whatever the operation's `resolve` raises. After that only defects
    raise: failures of items and of the run stand in the manifest. Setting `cancelled`, or a KeyboardInterrupt, ends
    the run in good order.
    """
    options = options or RunOptions()
    found = get_run(settings.folder, parent) if parent else None
    state = _load_parent(found) if found is not None else None
    sealed = _safe_labels(operation.resolve())
    if state is not None:
        admit(state, _asked(operation, sealed, options))
    if not sealed.items:
        raise _nothing_selected(operation.name, sealed.skipped)
    run = _Run(operation, sealed, settings, options, state, on_progress, cancelled or threading.Event())
    with contextlib.ExitStack() as held:
        if found is not None and not options.delta:
            # Taken last, so that a rejection leaves no trace; what was read is still so, for a log that nobody holds
            # grows no more. Held to the end: a second resume is refused instead of paying for the same items.
            # A delta is another input, and may well be one of several.
            held.enter_context(ActiveLock(found.resume_path, found.run_id, RESUMED))
        return run.carry_out()


def _load_parent(found: FoundRun) -> RunState:
    if found.activity() == "active":
        raise RunError(
            f"run {found.run_id} is still active, so what it covered is not settled",
            code="run_active",
            hint="Wait for it, or stop its process; then resume it.",
            run=found.run_id,
            path=str(found.path),
        )
    return found.load()


def _nothing_selected(operation: str, skipped: tuple[Skipped, ...]) -> RunError:
    counts = Counter(one.reason.partition(":")[0] for one in skipped)
    left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
    return RunError(
        f"nothing to {operation}: " + (f"everything was left out ({left_out})" if left_out else "the input is empty"),
        code="nothing_selected",
        hint="Look at the input, at the include and exclude patterns and at the limits.",
        skipped=[{"path": one.path, "reason": one.reason} for one in skipped] or None,
    )


def _safe_labels(sealed: Sealed) -> Sealed:
    # Before they are compared: a label that was redacted when it was recorded must equal itself the next time.
    target = Target(sanitise(sealed.target.provider), sanitise(sealed.target.model))
    return msgspec.structs.replace(sealed, target=target)


def _asked(operation: Operation, sealed: Sealed, options: RunOptions) -> Asked:
    return Asked(
        identity=sealed.identity,
        target=sealed.target,
        modes=operation.modes,
        explicit_provider=options.explicit_provider,
        explicit_model=options.explicit_model,
        delta=options.delta,
        resumable_hint=options.resumable_hint,
    )


class _Run:
    """One run while it goes on."""

    def __init__(
        self,
        operation: Operation,
        sealed: Sealed,
        settings: RunSettings,
        options: RunOptions,
        parent: RunState | None,
        on_progress: Callable[[Progress], None] | None,
        cancelled: threading.Event,
    ) -> None:
        self._operation = operation
        self._sealed = sealed
        self._settings = settings
        self._options = options
        self._parent = parent
        self._on_progress = on_progress
        self._cancelled = cancelled
        self._run_id = settings.new_id()
        self._started = settings.clock.monotonic()
        self._builder = ManifestBuilder(self._header(), operation.modes)
        self._lock = threading.Lock()
        self._items: dict[str, ItemRecord] = {}
        self._progress = Progress(self._run_id, 0)
        self._reserved = 0
        self._stopped = False
        self._defect: BaseException | None = None

    def carry_out(self) -> RunResult:
        folder = ensure_scope_folder(self._settings.folder, self._sealed.scope)
        with ActiveLock(folder / (self._run_id + LOCK), self._run_id):
            settings = self._settings
            self._log = RunLog(
                folder / (self._run_id + LOG),
                run_id=self._run_id,
                now=settings.clock.now,
                new_id=settings.new_id,
                write=settings.write,
            )
            try:
                self._begin()
                self._work(self._register())
            except KeyboardInterrupt:
                self._fail_run("cancelled", "the run was interrupted")
            except BaseException as error:
                self._fail_run("internal", f"{type(error).__name__}: {error}")
                self._end()
                raise
            result = self._end()
            if self._defect is not None:
                raise self._defect
            return result

    def _fail_run(self, classification: str, reason: str) -> None:
        with contextlib.suppress(ManifestError):  # The first cause stays.
            self._builder.set_run_failure(classification, reason)

    def _header(self) -> Manifest:
        sealed, parent = self._sealed, self._parent
        return Manifest(
            run_id=self._run_id,
            operation=self._operation.name,
            input=sealed.given,
            parent_run_id=parent.run_id if parent is not None else "",
            parent_interrupted=parent is not None and parent.manifest is None,
            repository=Repository(sealed.identity.repository_sha256),
            execution=Execution(
                version=self._settings.version,
                provider=sealed.target.provider,
                model=sealed.target.model,
                configured_concurrency=self._options.concurrency,
                rule_config_sha256=sealed.identity.rule_config_sha256,
                runtime_config_sha256=sealed.runtime_sha256,
            ),
        )

    # --- before the first item ----------------------------------------------------------------------------

    def _begin(self) -> None:
        sealed = self._sealed
        fields: dict[str, object] = {
            "operation": self._operation.name,
            "mode": sealed.identity.mode,
            "cwd": os.fspath(sealed.scope),
            "branch": sealed.branch,
            "provider": sealed.target.provider,
            "model": sealed.target.model,
            "requested": sealed.requested,
            "skipped": sealed.skipped,
        }
        if self._parent is not None:
            fields["resumed_from"] = self._parent.run_id
        self._log.append(log.RUN_START, fields)
        manifest = self._parent.vouched if self._parent is not None else None
        if self._parent is not None and manifest is not None:
            source, provider = manifest.execution, sealed.target.provider
            event = ResumeLineage(
                run_id=self._run_id,
                parent_run_id=self._parent.run_id,
                source=Target(source.provider, source.model),
                target=sealed.target,
                delta=self._options.delta,
                parent_interrupted=self._parent.manifest is None,
                agent=provider.removeprefix(AGENT_PREFIX) if provider.startswith(AGENT_PREFIX) else "",
            )
            self._log.append(log.RESUME_LINEAGE, {"lineage": event})

    def _register(self) -> list[Item]:
        """Registers and seals the selected set, reuses what the parent vouches for, and returns what is left to do."""
        first: dict[str, Item] = {}
        for item in self._sealed.items:
            first.setdefault(item.item_id, item)
            self._builder.register(CoverageItem(item.item_id, item.path, item.old_path, item.fingerprint))
        sealed = self._builder.seal()
        self._progress = Progress(self._run_id, len(first))
        known = reusable(self._parent) if self._parent is not None else {}
        left: list[Item] = []
        for item in first.values():
            checkpoint = known.get(item.fingerprint)
            if checkpoint is None:
                left.append(item)
            else:
                self._reuse(item, checkpoint)
        fault(BEFORE_SEAL)
        # The reused checkpoints stand before the seal: a run that is killed and itself resumed has lost none of them.
        self._log.append(log.RUN_SEALED, {"manifest": sealed}, sync=True)
        fault(AFTER_SEAL)
        return [item for item in left if not self._waive_asked(item)]

    def _reuse(self, item: Item, checkpoint: ItemRecord) -> None:
        assert self._parent is not None, "only a resumed run reuses"
        record = ItemRecord(
            type=log.ITEM_REUSED,
            item_id=item.item_id,
            file=item.path,
            old_path=item.old_path,
            new_path=item.path,
            fingerprint=item.fingerprint,
            result=checkpoint.result,
            source_run=checkpoint.source_run or self._parent.run_id,
            session=checkpoint.session,
            model=checkpoint.model,
        )
        self._builder.mark_reused(item.item_id)
        self._keep(record, flush=False)
        self._advance(item.path, reused=1)

    def _waive_asked(self, item: Item) -> bool:
        reason = self._options.waived.get(item.item_id) or self._options.waived.get(item.path)
        if not reason:
            return False
        self._decide(item, Waived(reason))
        return True

    # --- items --------------------------------------------------------------------------------------------

    def _work(self, left: list[Item]) -> None:
        if not left:
            return
        try:
            with self._operation.open(self._sealed, self._run_id) as worker:
                self._dispatch(left, worker)
        except ClewError as error:
            self._fail_run("input" if isinstance(error, FormatError) else "internal", error.message)

    def _dispatch(self, left: list[Item], worker: Worker) -> None:
        queue = iter(left)
        threads = [
            threading.Thread(target=self._loop, args=(queue, worker), name=f"clew-run-{n}", daemon=True)
            for n in range(max(1, min(self._options.concurrency, len(left))))
        ]
        for thread in threads:
            thread.start()
        try:
            self._join(threads)
        except KeyboardInterrupt:
            self._cancelled.set()
            self._join(threads)
        if self._defect is not None:
            self._fail_run("internal", f"{type(self._defect).__name__}: {self._defect}")
        elif self._cancelled.is_set() and self._open_items():
            self._fail_run("cancelled", "the run was interrupted")

    def _open_items(self) -> bool:
        now = self._progress
        return now.total > now.done + now.reused + now.waived

    def _join(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)

    def _loop(self, queue: Any, worker: Worker) -> None:
        try:
            while (item := self._next(queue)) is not None:
                self._do(item, worker)
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits, which raises it
            self._defect = self._defect or error
            self._stopped = True

    def _next(self, queue: Any) -> Item | None:
        with self._lock:
            if self._stopped or self._cancelled.is_set():
                return None
            item: Item | None = next(queue, None)
            if item is None:
                return None
            budget, spent = self._options.budget_tokens, self._progress.spent.total
            if budget and (spent >= budget or spent + self._reserved + item.tokens > budget):
                self._stopped = True
                self._builder.set_pending_cause(
                    "budget", f"the budget of {budget} tokens is used up: {spent} spent, next item about {item.tokens}"
                )
                return None
            self._reserved += item.tokens
            return item

    def _do(self, item: Item, worker: Worker) -> None:
        clock, limit = self._settings.clock, self._options.item_timeout_s
        deadline = clock.monotonic() + limit if limit else float("inf")
        context = ItemContext(
            self._run_id,
            remaining_s=lambda: deadline - clock.monotonic(),
            cancelled=self._cancelled,
            record=lambda kind, fields: self._log.append(kind, {"file": item.path, **fields}, flush=False),
        )
        outcome: Done | Waived | ItemFailed
        try:
            context.check()
            outcome = worker(item, context)
            if isinstance(outcome, Done):
                log.encode_json(outcome.result)  # What cannot be kept is no result: it would be done again.
        except ItemFailed as error:
            outcome = error
        except ClewError as error:
            outcome = ItemFailed("input" if isinstance(error, FormatError) else "unknown", error.message)
        except Exception as error:  # noqa: BLE001 - one item's defect must not take the others' results along
            outcome = ItemFailed("panic", f"{type(error).__name__}: {error}")
        with self._lock:
            self._reserved -= item.tokens
        self._decide(item, outcome)

    def _decide(self, item: Item, outcome: Done | Waived | ItemFailed) -> None:
        record = ItemRecord(
            item_id=item.item_id,
            file=item.path,
            old_path=item.old_path,
            new_path=item.path,
            fingerprint=item.fingerprint,
        )
        change = msgspec.structs.replace
        if isinstance(outcome, Done):
            self._builder.mark_completed(item.item_id)
            record = change(
                record,
                type=log.ITEM_DONE,
                result=outcome.result,
                session=outcome.session,
                model=outcome.model,
                usage=_usage(outcome.usage),
            )
            self._settle(record, outcome.usage, done=1)
        elif isinstance(outcome, Waived):
            self._builder.mark_waived(item.item_id, outcome.reason)
            record = change(record, type=log.ITEM_WAIVED, error=sanitise(outcome.reason))
            self._settle(record, Usage(), waived=1)
        else:
            self._builder.mark_failed(item.item_id, outcome.classification, outcome.reason)
            record = change(
                record,
                type=log.ITEM_FAILED,
                classification=outcome.classification,
                error=sanitise(outcome.reason),
                session=outcome.session,
                usage=_usage(outcome.usage),
            )
            self._settle(record, outcome.usage, failed=1)
            if outcome.ends_run:
                self._stopped = True
                self._fail_run(_run_class(outcome.classification), outcome.reason)

    def _settle(self, record: ItemRecord, usage: Usage, **counts: int) -> None:
        fault(BEFORE_CHECKPOINT)
        self._keep(record)
        fault(AFTER_CHECKPOINT)
        if record.session is not None:
            self._link(record.item_id, record.session)
        self._advance(record.path, usage, **counts)

    def _link(self, name: str, session: SessionRef) -> None:
        if self._settings.linked is None:
            return
        try:
            self._settings.linked(self._run_id, name, session)
        except ClewError as error:
            # The result stands; that its session is not in the lineage is told in the log.
            self._log.append("link_failed", {"item_id": name, "session": session, "error": sanitise(error.message)})

    def _keep(self, record: ItemRecord, *, flush: bool = True) -> None:
        members = msgspec.structs.asdict(record)
        fields = {name: value for name, value in members.items() if value and name != "type"}
        self._log.append(record.type, fields, flush=flush)
        with self._lock:
            self._items[record.item_id] = record

    def _advance(self, path: str, usage: Usage | None = None, **counts: int) -> None:
        with self._lock:
            now = self._progress
            self._progress = msgspec.structs.replace(
                now,
                path=path,
                spent=now.spent.plus(usage) if usage is not None else now.spent,
                **{name: getattr(now, name) + count for name, count in counts.items()},
            )
            if self._on_progress is not None:
                self._on_progress(self._progress)

    # --- the end ------------------------------------------------------------------------------------------

    def _end(self) -> RunResult:
        elapsed_ms = round((self._settings.clock.monotonic() - self._started) * 1000)
        manifest = self._builder.finalize(elapsed_ms)
        fault(BEFORE_END)
        spent = self._progress.spent
        error = self._log.close(
            {"run_manifest": manifest, "elapsed_ms": elapsed_ms, "files": self._progress.total, "usage": _usage(spent)}
        )
        return RunResult(manifest, self._items, self._log.path, spent, self._sealed.skipped, error)


def _run_class(classification: str) -> str:
    return classification if classification in RUN_FAILURE_CLASSES else "unknown"


def _usage(usage: Usage) -> dict[str, int]:
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
