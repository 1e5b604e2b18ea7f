"""The operation `review`: resolves refs to commits, then diffs, then the selection; asks about each file.

Modes: `range` (merge base of two refs .. the second), `commit` (one commit against its first parent), `staged` (the
index), `workspace` (everything uncommitted). The first two can be resumed. The sealed input names commits and holds
contents; a ref, file or rule that moves afterwards changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from clew.errors import UsageError
from clew.runs.admission import Identity
from clew.runs.finding import Unanswerable, read_findings
from clew.runs.fingerprint import (
    RunDigest,
    field_hash,
    item_fingerprint,
    item_id,
    repository_digest,
    runtime_digest,
    source_artifact,
    tree_digest,
)
from clew.runs.manifest import RunInput
from clew.runs.operation import Done, Item, ItemContext, ItemFailed, Sealed, Worker
from clew.runs.review.asking import AskAgent, Patience, ask_patiently, pause_for
from clew.runs.review.checkout import checked_out, remove_stale_checkouts
from clew.runs.review.diff import Change, changes_between, changes_in_worktree, changes_staged
from clew.runs.review.git import (
    Git,
    blob_sizes,
    branch_name,
    empty_tree,
    find_head,
    first_parent,
    index_tree,
    merge_base,
    need_work_tree,
    read_blob,
    remote_address,
    resolve_commit,
)
from clew.runs.review.question import make_question
from clew.runs.review.rules import RuleSet, file_filter, rule_for, rules_digest
from clew.runs.review.selection import DEFAULT_TOKEN_LIMIT, estimate_tokens, select

RESUMABLE = "--from/--to or --commit"


class Wanted(Struct, frozen=True):
    """What was typed: a mode and its refs. Without any, `workspace`."""

    mode: str = "workspace"
    from_ref: str = ""
    to_ref: str = ""
    commit: str = ""


def make_wanted(
    *, from_ref: str = "", to_ref: str = "", commit: str = "", staged: bool = False, workspace: bool = False
) -> Wanted:
    """Returns what was typed; raises UsageError when it names no input, or more than one."""
    named = [bool(from_ref or to_ref), bool(commit), staged, workspace]
    if sum(named) > 1:
        raise UsageError(
            "more than one input is named", hint="Take one of --from/--to, --commit, --staged, --workspace."
        )
    if to_ref and not from_ref:
        raise UsageError("--to needs --from", hint="Name where the range begins, or take --commit.")
    if from_ref:
        return Wanted("range", from_ref, to_ref or "HEAD")
    if commit:
        return Wanted("commit", commit=commit)
    return Wanted("staged" if staged else "workspace")


class ReviewLimits(Struct, frozen=True):
    """Bounds of a review: tokens of one file's patch, tokens of its content beyond which it is not shown."""

    file_tokens: int = DEFAULT_TOKEN_LIMIT
    content_tokens: int = DEFAULT_TOKEN_LIMIT


class ReviewPlan(Struct, frozen=True):
    """How the items are asked about: recorded in the runtime digest, not compared."""

    concurrency: int = 1
    item_timeout_s: float = 0
    budget_tokens: int = 0
    language: str = ""


class _Pinned(Struct, frozen=True):
    """What `work` needs of the sealed input: the changes by item id, and which state an agent is to see."""

    changes: dict[str, Change]
    paths: frozenset[str]
    base: str
    head: str
    index_tree: str


class _Input(Struct, frozen=True):
    given: RunInput
    changes: tuple[Change, ...]
    base: str = ""
    head: str = ""


class ReviewOperation:
    """A review of one repository by one asker, as an operation of the run machinery.

    `checkouts` is the folder for temporary work trees; `is_active` tells which runs still go on.
    """

    name = "review"
    modes: Mapping[str, bool] = {"range": True, "commit": True, "staged": False, "workspace": False}

    def __init__(
        self,
        git: Git,
        wanted: Wanted,
        rules: RuleSet,
        asker: AskAgent,
        *,
        checkouts: Path,
        plan: ReviewPlan | None = None,
        limits: ReviewLimits | None = None,
        typed: Mapping[str, Any] | None = None,
        patience: Patience | None = None,
        pause: Callable[[ItemContext, float], None] = pause_for,
        is_active: Callable[[str], bool] = lambda run_id: True,
    ) -> None:
        self._git = git
        self._wanted = wanted
        self._rules = rules
        self._asker = asker
        self._checkouts = checkouts
        self._plan = plan or ReviewPlan()
        self._limits = limits or ReviewLimits()
        self._typed = dict(typed or {})
        self._patience = patience or Patience()
        self._pause = pause
        self._is_active = is_active

    # --- resolving ----------------------------------------------------------------------------------------

    def resolve(self) -> Sealed:
        """Returns the sealed input: commits first, then diffs, then exactly the run's selection."""
        found = self._load()
        chosen = select(found.changes, file_filter(self._rules), self._limits.file_tokens)
        sizes = blob_sizes(self._git, [change.blob for change in chosen.selected if change.blob])
        mode = self._wanted.mode
        items: list[Item] = []
        changes: dict[str, Change] = {}
        for change in chosen.selected:
            name = item_id(self.name, mode, change.old_path, change.path)
            size = sizes.get(change.blob, 0) if change.content is None else len(change.content)
            tokens = estimate_tokens(len(change.patch) + size)
            items.append(Item(name, change.path, item_fingerprint(mode, change.patch), change.old_path, tokens))
            changes.setdefault(name, change)
        artifact = source_artifact(((item.item_id, item.fingerprint) for item in items), self._tree(found))
        rules = rules_digest(self._rules)
        given = found.given
        return Sealed(
            identity=Identity(self.name, mode, artifact, rules, repository_digest(remote_address(self._git))),
            items=tuple(items),
            given=RunInput(
                mode=mode,
                requested_from=given.requested_from,
                requested_head=given.requested_head,
                resolved_base=given.resolved_base,
                resolved_head=given.resolved_head,
                exact_range=given.exact_range,
                source_artifact_sha256=artifact,
                snapshot_tree=given.snapshot_tree,
            ),
            scope=self._git.root,
            target=self._asker.target,
            runtime_sha256=self._runtime(),
            requested=self._typed,
            branch=branch_name(self._git),
            skipped=chosen.skipped,
            private=_Pinned(changes, frozenset(i.path for i in items), found.base, found.head, given.snapshot_tree),
        )

    def _load(self) -> _Input:
        git, wanted = self._git, self._wanted
        if wanted.mode == "range":
            start, head = resolve_commit(git, wanted.from_ref), resolve_commit(git, wanted.to_ref)
            base = merge_base(git, start, head)
            given = RunInput("range", wanted.from_ref, wanted.to_ref, base, head, f"{base}..{head}")
            return _Input(given, changes_between(git, base, head), base, head)
        if wanted.mode == "commit":
            head = resolve_commit(git, wanted.commit)
            base = first_parent(git, head) or empty_tree(git)
            given = RunInput("commit", "", wanted.commit, base, head, f"{base}..{head}")
            return _Input(given, changes_between(git, base, head), base, head)
        need_work_tree(git)
        head = find_head(git) or ""
        if wanted.mode == "staged":
            changes = changes_staged(git)
            return _Input(RunInput("staged", resolved_base=head, snapshot_tree=index_tree(git)), changes, head)
        return _Input(RunInput("workspace", resolved_base=head), changes_in_worktree(git), head, head)

    def _tree(self, found: _Input) -> RunDigest | None:
        """Returns the digest of the user's own tree where the work is done in it: an agent on local changes."""
        if self._wanted.mode != "workspace" or not self._asker.works_in_folder:
            return None
        local = field_hash(*(part for change in found.changes for part in (change.name, change.patch)))
        return tree_digest(str(self._git.root), found.head or None, local)

    def _runtime(self) -> RunDigest:
        return runtime_digest(
            protocol=self._asker.protocol,
            model=self._asker.target.model,
            host=self._asker.host,
            language=self._plan.language,
            timeout_s=self._plan.item_timeout_s,
            concurrency=self._plan.concurrency,
            budget_tokens=self._plan.budget_tokens,
        )

    # --- working ------------------------------------------------------------------------------------------

    @contextmanager
    def open(self, sealed: Sealed, run_id: str) -> Generator[Worker]:
        """Lays out the checkout where the asker wants one, and gives the worker."""
        pinned: _Pinned = sealed.private
        place = nullcontext[Path | None](None)
        if self._asker.works_in_folder and self._wanted.mode == "workspace":
            place = nullcontext[Path | None](self._git.root)
        elif self._asker.works_in_folder:
            remove_stale_checkouts(self._git, self._checkouts, self._is_active)
            commit = pinned.head or pinned.base
            place = checked_out(
                self._git,
                commit,
                self._checkouts,
                run_id,
                index_tree=pinned.index_tree,
                left_out=self._asker.left_out,
            )
        with place as folder:
            yield lambda item, context: self._review(pinned, item, folder, context)

    def _review(self, pinned: _Pinned, item: Item, folder: Path | None, context: ItemContext) -> Done:
        change = pinned.changes[item.item_id]
        content = self._content(change)
        text = content.decode("utf-8", "replace")
        shown = text if estimate_tokens(len(content)) <= self._limits.content_tokens else None
        question = make_question(
            change.path,
            change.old_path,
            rule_for(self._rules, change.path),
            change.patch.decode("utf-8", "replace"),
            shown,
            language=self._plan.language,
            in_folder=folder is not None,
        )
        context.record("llm_request", {"task": "review", "messages": [{"role": "user", "content": question}]})
        answer = ask_patiently(self._asker, question, folder, context, self._patience, self._pause)
        context.record(
            "llm_response",
            {"task": "review", "content": answer.text, "model": answer.model, "session": answer.session,
             "usage": {"input_tokens": answer.usage.input_tokens, "output_tokens": answer.usage.output_tokens}},
        )  # fmt: skip
        try:
            found, rejected = read_findings(answer.text, change.path, tuple(text.splitlines()), pinned.paths)
        except Unanswerable as error:
            raise ItemFailed("provider", str(error), usage=answer.usage, session=answer.session) from error
        if rejected and not found:
            why = f"nothing in the answer is a finding: the first {rejected[0].reason}"
            raise ItemFailed("provider", why, usage=answer.usage, session=answer.session)
        result: dict[str, Any] = {"findings": msgspec.to_builtins(list(found))}
        if rejected:
            result["rejected"] = msgspec.to_builtins(list(rejected))
        return Done(result, answer.usage, answer.session, answer.model)

    def _content(self, change: Change) -> bytes:
        if change.content is not None:
            return change.content
        return read_blob(self._git, change.blob) if change.blob else b""
