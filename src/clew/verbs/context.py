"""What every verb is given: where things are, what time it is, and the stores. Nothing outside is read here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from clew.errors import StoreError
from clew.formats.protocol import Home
from clew.platform.clock import Clock
from clew.store.opening import Stores, open_stores

if TYPE_CHECKING:
    from clew.verbs.leases import Leases

HOST = "host"
"""The file in clew's own folder that names this host."""


def no_progress(what: str, done: int, total: int) -> None:
    """Shows no progress."""


class Context:
    """Paths, clock and stores for one command. Stores are opened on first use; `close` closes what was opened.

    `home` is where agents' homes are looked for, `data` clew's own folder, `cwd` the folder the caller stands in,
    `env` the environment for a program that clew becomes; `state` a folder for what must not go back to a backup with
    `data`, None for nowhere. `progress(what, done, total)` is called during long work.
    """

    def __init__(
        self,
        home: Home,
        data: Path,
        *,
        cwd: Path,
        clock: Clock,
        env: Mapping[str, str] | None = None,
        store_url: str | None = None,
        blobs_url: str | None = None,
        state: Path | None = None,
        progress: Callable[[str, int, int], None] = no_progress,
    ) -> None:
        self.home, self.data, self.cwd, self.clock = home, data, cwd, clock
        self.env = dict(env or {})
        self.notes: list[str] = []
        self.store_url, self.blobs_url, self.state = store_url, blobs_url, state
        self.progress = progress
        self._stores: Stores | None = None
        self._leases: Leases | None = None

    @property
    def stores(self) -> Stores:
        """Returns clew's own stores, opening them on first use."""
        if self._stores is None:
            self._stores = open_stores(
                self.data, url=self.store_url, blobs=self.blobs_url, outside=self.state, clock=self.clock
            )
        return self._stores

    @property
    def leases(self) -> Leases:
        """Returns the leases as this process knows them; the first use names this host in clew's own folder."""
        if self._leases is None:
            from clew.platform.host import host_id
            from clew.verbs.activity import make_activity
            from clew.verbs.leases import Leases
            from clew.verbs.probing import Observer, make_holder

            try:
                here = host_id(self.data / HOST)
            except OSError as error:
                raise StoreError(
                    f"{self.data / HOST}: {error.strerror}",
                    hint="It names this machine. Check that the disk has space and that the folder is yours to write.",
                    path=str(self.data / HOST),
                ) from error
            observer = Observer(make_holder(here), make_activity(self))
            self._leases = Leases(self.stores.records, observer, self.clock)
        return self._leases

    @property
    def drafts(self) -> Path:
        """Returns the folder for texts that are not placed yet."""
        return self.data / "drafts"

    def now_ms(self) -> int:
        """Returns the time in ms since 1970, UTC."""
        return int(self.clock.now().timestamp() * 1000)

    def close(self) -> None:
        """Closes what was opened."""
        self._leases = None
        if self._stores is not None:
            self._stores.close()
            self._stores = None

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
