"""The operation `translate`: many sessions of one agent carried to another, as one run that can be interrupted.

An item is a session, known by where it lies and by the bytes of its streams; one that changed between the seal and its
turn fails as a change of input. What is converted stays so: a resume goes on with the rest, and doing a session again
continues the one that is there. How sessions are found and converted is handed in.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from clew.errors import ClewError, Refused
from clew.runs.fingerprint import item_fingerprint, item_id
from clew.runs.lineage import Target
from clew.runs.log import SessionRef
from clew.runs.operation import Done, Item, ItemContext, ItemFailed, Sealed, Skipped, Waived, Worker, seal

MODE = "sessions"


class StoredSession(Struct, frozen=True):
    """One session as it was found: where it lies, and the digest of its bytes."""

    agent: str
    session_id: str
    path: str
    digest: str


class Translated(Struct, frozen=True):
    """What became of one session: the new one, and the conversion's own report as JSON."""

    session_id: str
    report: dict[str, Any]


class Translator(Protocol):
    """Finds the sessions of a run and converts one of them."""

    def find(self) -> Iterable[StoredSession | Skipped]:
        """Yields the sessions to translate, and those that cannot be; reads only."""
        ...

    def translate(self, session: StoredSession) -> Translated | None:
        """Converts one session; None when its bytes are no longer those that were sealed. Raises ClewError."""
        ...


class TranslateOperation:
    """Sessions of `source` carried to `target`, as an operation of the run machinery.

    `rules` are the options that a conversion depends on: they may not change along a chain of resumes. `scope` is the
    folder whose runs this one joins.
    """

    name = "translate"
    modes: Mapping[str, bool] = {MODE: True}

    def __init__(
        self,
        translator: Translator,
        *,
        source: str,
        target: str,
        scope: Path,
        rules: Mapping[str, str] | None = None,
        typed: Mapping[str, Any] | None = None,
    ) -> None:
        self._translator = translator
        self._source = source
        self._target = target
        self._scope = scope
        self._rules = dict(rules or {})
        self._typed = dict(typed or {})

    def resolve(self) -> Sealed:
        """Returns the sealed input: every session that was found, with the digest of its bytes."""
        found: dict[str, StoredSession] = {}
        items: list[Item] = []
        skipped: list[Skipped] = []
        for one in self._translator.find():
            if isinstance(one, Skipped):
                skipped.append(one)
                continue
            name = item_id(self.name, MODE, one.path, f"{self._target}:{one.session_id}")
            content = f"{one.path}\0{one.digest}".encode("utf-8", "surrogatepass")
            items.append(Item(name, one.path, item_fingerprint(MODE, content)))
            found.setdefault(name, one)
        rules = ("translate", self._source, self._target, *(f"{k}={v}" for k, v in sorted(self._rules.items())))
        return seal(
            self.name,
            MODE,
            tuple(items),
            scope=self._scope,
            rules=rules,
            target=Target(),
            requested=self._typed,
            skipped=tuple(skipped),
            private=found,
        )

    @contextmanager
    def open(self, sealed: Sealed, run_id: str) -> Generator[Worker]:
        """Gives the worker."""
        found: dict[str, StoredSession] = sealed.private
        yield lambda item, context: self._translate(found[item.item_id], context)

    def _translate(self, session: StoredSession, context: ItemContext) -> Done | Waived:
        try:
            done = self._translator.translate(session)
        except Refused as error:
            if error.code == "nothing_to_convert":
                return Waived("nothing was said in it")
            raise ItemFailed("input", f"{error.message} ({error.code})") from error
        except ClewError as error:
            raise ItemFailed("input" if error.exit_code in (3, 5, 6) else "unknown", error.message) from error
        if done is None:
            raise ItemFailed("input", "the session changed after the run was sealed")
        return Done({"translated": done.report}, session=SessionRef(self._target, done.session_id))
