"""From what was typed to a run: who is asked, which operation, with which settings; anew for a resume.

Environment, folders and programs of the user come in through the invocation; the library underneath is handed values.
"""

from __future__ import annotations

import os
import shutil
import signal
import uuid
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import clew
from clew.cli.group import Invocation, agent_environment
from clew.cli.run_settings import ReviewSettings, review_settings
from clew.cli.settings import FILE_NAME
from clew.errors import NotFoundError, RunError, UsageError
from clew.formats.registry import get_format
from clew.runs.engine import Progress, RunOptions, RunResult, RunSettings, carry_out
from clew.runs.folder import find_all, get_run
from clew.runs.operation import Operation
from clew.runs.review.agents import HEADLESS, get_headless
from clew.runs.review.asking import AskAgent
from clew.runs.review.diff import show_pattern
from clew.runs.review.endpoint import EndpointAsker, resolve_endpoint
from clew.runs.review.git import Git, open_repository
from clew.runs.review.headless import AgentAsker
from clew.runs.review.operation import RESUMABLE, ReviewLimits, ReviewOperation, ReviewPlan, make_wanted
from clew.runs.review.rules import FileFilter, load_rules
from clew.runs.review.selection import DEFAULT_TOKEN_LIMIT
from clew.runs.sessions import ThreadLinker, VerbTranslator
from clew.runs.translate import TranslateOperation
from clew.verbs.context import Context

DEFAULT_TIMEOUT_S = 600.0

_OF_ONE_COMMAND = frozenset({"cwd", "waive"})
"""What a resume never takes over; but the folder of a translation is its input."""


class Plan(NamedTuple):
    """An operation that is ready to be resolved, and what of it was typed on this very command."""

    operation: Operation
    explicit_provider: bool = False
    explicit_model: bool = False
    links_sessions: bool = False
    settings: ReviewSettings = ReviewSettings()


class Start:
    """One command that starts a run: the words that were typed, and everything that they are read with."""

    def __init__(
        self, run: Invocation, ctx: Context, typed: Mapping[str, Any], *, parent: str = "", delta: bool = False
    ) -> None:
        self.run, self.ctx = run, ctx
        self.words: dict[str, Any] = {name: value for name, value in typed.items() if value not in (None, (), False)}
        self.typed_here = frozenset(self.words)
        self.parent, self.delta = parent, delta
        self.settings = RunSettings(
            folder=runs_folder(run), clock=ctx.clock, new_id=lambda: uuid.uuid4().hex, version=clew.__version__
        )

    @property
    def kept(self) -> dict[str, Any]:
        """The words that a resume of this run takes over."""
        left_out = _OF_ONE_COMMAND - ({"cwd"} if "from_agent" in self.words else set())
        return {name: value for name, value in self.words.items() if name not in left_out}

    def carry_out(self, begin: Callable[[Start], Plan]) -> RunResult:
        """Carries out what `begin` plans; Ctrl-C and a polite kill end the run in good order."""
        plan = begin(self)
        settings = self.settings
        if plan.links_sessions:
            settings = RunSettings(
                settings.folder, settings.clock, settings.new_id, settings.version, linked=ThreadLinker(self.ctx)
            )
        options = RunOptions(
            concurrency=plan.settings.jobs or 1,
            budget_tokens=plan.settings.budget,
            item_timeout_s=plan.settings.timeout,
            explicit_provider=plan.explicit_provider,
            explicit_model=plan.explicit_model,
            delta=self.delta,
            waived=_read_waived(self.words.get("waive", ())),
            resumable_hint=RESUMABLE if plan.operation.name == "review" else "",
        )
        with _polite_kill():
            return carry_out(plan.operation, settings, options, parent=self.parent, on_progress=self._progress)

    def _progress(self, told: Progress) -> None:
        parts = [f"{told.reused} reused" if told.reused else "", f"{told.failed} failed" if told.failed else ""]
        parts.append(f"{told.spent.total:,} tokens" if told.spent.total else "")
        detail = ", ".join(filter(None, parts))
        what = f"items ({detail}):" if detail else "items:"
        self.run.screen.progress(what, told.done + told.reused + told.failed + told.waived, told.total)


def _read_waived(words: tuple[str, ...]) -> dict[str, str]:
    """Returns the reasons by path of `PATH=REASON`; raises UsageError when one has no reason."""
    waived: dict[str, str] = {}
    for word in words:
        path, _, reason = word.partition("=")
        if not path or not reason.strip():
            raise UsageError(f"{word!r} waives nothing", hint="Write --waive PATH=REASON.")
        waived[path] = reason
    return waived


@contextmanager
def _polite_kill() -> Generator[None]:
    """Takes SIGTERM, and the end of the terminal, for Ctrl-C while a run goes on: it is ended and not only cut off."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before: list[tuple[signal.Signals, Any]] = []
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            # Under nohup the end of the terminal is nothing to this process, and stays so.
            if signal.getsignal(number) is signal.SIG_DFL:
                before.append((number, signal.signal(number, interrupt)))
    except ValueError:  # not in the main thread: whoever embeds the command line handles signals
        yield
        return
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def runs_folder(run: Invocation) -> Path:
    """Returns the folder of all runs."""
    return run.settings.data / "runs"


def open_git(run: Invocation, cwd: str | None) -> Git:
    """Returns the repository of a folder; raises NotFoundError."""
    return open_repository(run.around.cwd / cwd if cwd else run.around.cwd, run.around.env)


def repository_of(run: Invocation, cwd: str | None) -> Path | None:
    """Returns the top of the repository that a folder lies in; None when it lies in none."""
    try:
        return open_git(run, cwd).root
    except NotFoundError:
        return None


def scope_of(run: Invocation, cwd: str | None) -> Path:
    """Returns the folder whose runs are meant: the repository's top, else the folder itself."""
    return repository_of(run, cwd) or (run.around.cwd / cwd if cwd else run.around.cwd)


# --- review -----------------------------------------------------------------------------------------------


def start_review(start: Start, words: Mapping[str, Any]) -> Plan:
    """Plans a review from what was typed; raises UsageError, NotFoundError or UnreadableSource."""
    run = start.run
    git = open_git(run, start.words.get("cwd"))
    wanted = make_wanted(
        from_ref=words.get("from_ref", ""),
        to_ref=words.get("to_ref", ""),
        commit=words.get("commit", ""),
        staged=words.get("staged", False),
        workspace=words.get("workspace", False),
    )
    custom = run.around.cwd / words["rules"] if "rules" in words else None
    if custom is not None:
        start.words["rules"] = str(custom)
    for name in {"include", "exclude"} & start.words.keys():
        start.words[name] = tuple(show_pattern(os.fsencode(text)) for text in start.words[name])
    words = start.words
    typed = FileFilter(tuple(words.get("include", ())), tuple(words.get("exclude", ())))
    rules = load_rules(git.root, custom=custom, user=_config_folder(run) / "rules.toml", typed=typed)
    settings = review_settings(words, run.around.env, _config_folder(run) / FILE_NAME)
    settings = settings._replace(timeout=settings.timeout or DEFAULT_TIMEOUT_S)
    for warning in settings.warnings:
        run.screen.warn(warning)
    asker = make_asker(start, settings)
    plan = ReviewPlan(
        concurrency=settings.jobs or 1,
        item_timeout_s=settings.timeout,
        budget_tokens=settings.budget,
        language=words.get("language", ""),
    )
    operation = ReviewOperation(
        git,
        wanted,
        rules,
        asker,
        checkouts=start.ctx.data / "checkouts",
        plan=plan,
        limits=ReviewLimits(file_tokens=words.get("max_file_tokens", DEFAULT_TOKEN_LIMIT)),
        typed={"operation": "review", **start.kept},
        is_active=lambda run_id: _is_active(start.settings.folder, run_id),
    )
    here = start.typed_here
    return Plan(operation, bool(here & {"agent", "provider"}), "model" in here, links_sessions=True, settings=settings)


def _is_active(folder: Path, run_id: str) -> bool:
    return any(found.activity() == "active" for found in find_all(folder) if found.run_id == run_id)


def _config_folder(run: Invocation) -> Path:
    root = run.settings.root
    return root / ".config" / "clew" if root is not None else run.around.config_folder()


def make_asker(start: Start, settings: ReviewSettings) -> AskAgent:
    """Returns who is asked: the one that the settings name, else the first agent that is here."""
    if not settings.provider:
        return _make_agent(start, settings.agent, settings.model)
    env = start.run.around.env
    endpoint = resolve_endpoint(
        settings.provider, settings.model, url=settings.endpoint, key_name=settings.key_env, environment=env
    )
    return EndpointAsker(endpoint, env)


def _make_agent(start: Start, name: str, model: str) -> AskAgent:
    environment = agent_environment(start.run.settings, start.run.around)
    search = environment.get("PATH", "")
    for known in (name,) if name else tuple(HEADLESS):
        agent = get_headless(known)
        program = shutil.which(agent.name, path=search)
        if program is None:
            continue
        # The model that the agent is set to now: when its configuration changes, a resume is to notice.
        set_to = get_format(agent.name).locate.settings(start.ctx.home)
        named = (set_to.provider, set_to.model) if agent.names_provider else (set_to.model,)
        chosen = model or (set_to.model and "/".join(filter(None, named)))
        return AgentAsker(
            agent, program=program, model=chosen, environment=environment, new_uuid=lambda: str(uuid.uuid4())
        )
    raise NotFoundError(
        f"{name} is not installed" if name else f"none of {', '.join(HEADLESS)} is installed",
        code="agent_missing",
        hint="Install an agent, or ask an endpoint: --provider NAME --model NAME.",
        agent=name or None,
    )


# --- translate --------------------------------------------------------------------------------------------


def start_translate(start: Start, words: Mapping[str, Any]) -> Plan:
    """Plans a translation of many sessions from what was typed."""
    source, target = words["from_agent"], words["to_agent"]
    if source == target:
        raise UsageError(f"the sessions are {source}'s already", hint="Name another agent with --to.")
    folder, model, full = words.get("cwd"), words.get("model"), bool(words.get("full", False))
    translator = VerbTranslator(start.ctx, source, target, folder=folder, model=model, full=full)
    operation = TranslateOperation(
        translator,
        source=source,
        target=target,
        scope=Path(folder) if folder else start.ctx.home.root,
        rules={"model": model or "", "full": str(full), "folder": folder or ""},
        typed={"operation": "translate", **start.kept},
    )
    named = {name: start.words[name] for name in ("jobs", "timeout", "budget") if name in start.words}
    return Plan(operation, settings=ReviewSettings(**named))


# --- resume -----------------------------------------------------------------------------------------------

_STARTERS: dict[str, Callable[[Start, Mapping[str, Any]], Plan]] = {
    "review": start_review,
    "translate": start_translate,
}


def resume_run(start: Start, name: str) -> Plan:
    """Plans the run that goes on from another: what was typed for that one, with what was typed now on top of it."""
    parent = get_run(start.settings.folder, name).load()
    before = dict(parent.start.requested) if parent.start is not None else {}
    operation = str(before.pop("operation", "") or (parent.start.operation if parent.start is not None else ""))
    starter = _STARTERS.get(operation)
    if starter is None:
        known = f"it is of the operation {operation!r}, which is not known here"
        raise RunError(
            f"run {parent.run_id} cannot be resumed: {known if operation else 'its log does not tell what it was'}",
            code="operation_changed" if operation else "run_interrupted",
            hint="Start a new run; `clew run show` tells what this one holds.",
            run=parent.run_id,
        )
    if start.typed_here & {"agent", "provider"}:
        # Another provider brings its own model, address and key.
        for word in ("agent", "provider", "model", "endpoint", "key_env"):
            before.pop(word, None)
    start.words = {**before, **start.words}
    start.parent = parent.run_id
    return starter(start, start.words)
