"""Where trajectories lie: no home holds any. One is named by its path, or was written under `--out`."""

from __future__ import annotations

import re
from pathlib import Path

from clew.formats.atif.reader import AGENT
from clew.formats.protocol import Home
from clew.formats.shelf import Aside, Shelf

ENDING = ".atif.json"
_KNOWN = re.compile(rb'"schema_version"\s*:\s*"ATIF-v\d')


def _base(home: Home) -> Path:
    return home.root


def _name(path: Path) -> str:
    return path.name.removesuffix(ENDING) if path.name.endswith(ENDING) else path.stem


SHELF = Shelf(
    AGENT,
    _base,
    (f"*{ENDING}",),
    lambda path, head: head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{" and _KNOWN.search(head) is not None,
    name=_name,
    hidden=True,
)
RESUME = Aside()
