"""Formats of other packages, brought in through their own door: real distributions on the import path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clew.formats.registry import forget_formats


def make_distribution(folder: Path, name: str, points: dict[str, str]) -> Path:
    """Puts an installed distribution into `folder`: its metadata with entry points, and nothing else."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "".join(f"{agent} = {value}\n" for agent, value in points.items())
    (info / "entry_points.txt").write_text(f"[clew.formats]\n{lines}")
    return folder


@contextmanager
def installed(*folders: Path) -> Iterator[None]:
    """Puts folders on the import path for a while, so that what is installed there counts."""
    added = [str(folder) for folder in folders]
    sys.path[:0] = added
    forget_formats()
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)
        forget_formats()
