"""A home with sessions of several agents in it and clew's own folder: what a verb is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from clew.formats.protocol import Home
from clew.laws.stored import Stored
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew_format_tiny import FORMAT as TINY
from doors import installed, make_distribution
from lineformat import FORMAT as LINES


class House:
    """One user's home and clew's data folder."""

    def __init__(self, folder: Path) -> None:
        self.home, self.data = Home(folder / "home"), folder / "data"
        self.home.root.mkdir()
        self.clock = FixedClock()

    @contextmanager
    def at_work(self) -> Iterator[Context]:
        """Gives what one command is given; each comes a minute after the one before."""
        self.clock.advance(60)
        with Context(self.home, self.data, cwd=self.home.root, clock=self.clock) as ctx:
            yield ctx

    def place(self, stored: Stored) -> Path:
        """Puts a session where its agent keeps it, in place of what is there."""
        base = stored.form.locate.base(self.home)
        for file in stored.side:
            (base / file.path).parent.mkdir(parents=True, exist_ok=True)
            (base / file.path).write_bytes(bytes(file.load()))
        path = base / stored.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(stored.data)
        return path

    def stored(self, stored: Stored) -> Stored:
        """Returns the session as it lies there now."""
        base = stored.form.locate.base(self.home)
        return msgspec.structs.replace(stored, data=(base / stored.path).read_bytes())

    def files(self) -> dict[str, bytes]:
        """Returns every file of the home."""
        root = self.home.root
        return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@contextmanager
def agents_of_the_tests(folder: Path) -> Iterator[None]:
    """Installs the two formats of the tests beside those that are there."""
    points = {LINES.name: "lineformat:FORMAT", TINY.name: "clew_format_tiny:FORMAT"}
    with installed(make_distribution(folder, "agents-of-the-tests", points)):
        yield
