"""Writes docs/matrix.md: every ordered pair of agents on every recorded session of this repository, carried for real.

Each session goes through the verbs to the other agent, its own file is taken away, and it comes home from there. Usage:
python scripts/matrix.py [--check]. With --check nothing is written, and a cell that is not whole is a failure.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from clew.errors import ClewError  # noqa: E402
from clew.formats.protocol import Format, Home  # noqa: E402
from clew.formats.registry import all_formats  # noqa: E402
from clew.platform.clock import FixedClock  # noqa: E402
from clew.verbs.context import Context  # noqa: E402
from clew.verbs.convert import convert  # noqa: E402
from clew.verbs.refer import open_session  # noqa: E402
from clew_corpus import Case, own_cases  # noqa: E402

PAGE = ROOT / "docs" / "matrix.md"
CLOCK = FixedClock(datetime(2026, 12, 1, 12, tzinfo=UTC))


def carry(case: Case, there: Format, folder: Path) -> tuple[bool, bool, str]:
    """Carries one session there and home; returns whether the keys agree, whether the bytes do, and what went wrong."""
    home = case.copy_home(folder / "home")
    abroad = folder / "abroad"
    with Context(Home(home), folder / "data", cwd=folder, clock=CLOCK) as ctx:
        opened = open_session(ctx, f"{case.agent}:{case.session_id}")
        if not opened.session.messages:
            return True, True, ""
        made = convert(ctx, f"{case.agent}:{case.session_id}", to=there.name, out=abroad)
    with Context(Home(abroad), folder / "data", cwd=folder, clock=CLOCK) as ctx:
        target = made.to.path if not there.traits.offline else f"{there.name}:{made.to.session_id}"
        reading = open_session(ctx, target if there.name != "atif" else made.to.path)
        keys = reading.keys == opened.keys
        back = convert(ctx, target if there.name != "atif" else made.to.path, to=case.agent, out=folder / "back")
    with Context(Home(folder / "back"), folder / "data", cwd=folder, clock=CLOCK) as ctx:
        again = open_session(ctx, f"{case.agent}:{back.to.session_id}")
    old = [bytes(s.data) for s in opened.source.streams]
    return keys, [bytes(s.data) for s in again.source.streams] == old, ""


def make_page() -> tuple[str, list[str]]:
    """Returns the page and what is not whole."""
    writable = [form for form in all_formats() if form.write is not None and form.traits.writes]
    cases = [case for case in own_cases() if case.session_id]
    faults: list[str] = []
    keys: Counter[tuple[str, str]] = Counter()
    bytes_: Counter[tuple[str, str]] = Counter()
    count: Counter[tuple[str, str]] = Counter()
    for case in cases:
        for there in writable:
            if there.name == case.agent:
                continue
            pair = (case.agent, there.name)
            count[pair] += 1
            folder = Path(tempfile.mkdtemp())
            try:
                same_keys, same_bytes, _ = carry(case, there, folder)
            except ClewError as error:
                same_keys = same_bytes = False
                faults.append(f"{case} to {there.name}: {error.message}")
            finally:
                shutil.rmtree(folder)
            keys[pair] += same_keys
            bytes_[pair] += same_bytes
            if not (same_keys and same_bytes):
                faults.append(f"{case} to {there.name}: keys {same_keys}, bytes {same_bytes}")
    return _render(writable, count, keys, bytes_, faults), faults


def _render(
    writable: list[Format],
    count: Counter[tuple[str, str]],
    keys: Counter[tuple[str, str]],
    bytes_: Counter[tuple[str, str]],
    faults: list[str],
) -> str:
    sources = sorted({pair[0] for pair in count})
    names = [form.name for form in writable]
    lines = [
        "# From every agent to every agent",
        "",
        "Made by `scripts/matrix.py`: each recorded session of `tests/fixtures` is carried to the agent of the column,",
        "its own file is taken away, and it comes home from there. A cell counts the sessions whose keys agree in the",
        "other agent, and those that came home byte for byte (row for row), of all carried. Generated conversations go",
        "through every ordered pair, and through longer ways, in `tests/law`.",
        "",
        "| from / to | " + " | ".join(names) + " |",
        "| --- |" + " --- |" * len(names),
    ]
    for source in sources:
        cells = [
            "-" if source == name else f"{keys[source, name]} / {bytes_[source, name]} of {count[source, name]}"
            for name in names
        ]
        lines.append(f"| {source} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## Judged by the real agent",
        "",
        "| agent | version whose real program resumed what clew wrote |",
        "| --- | --- |",
    ]
    lines += [f"| {form.title} | {form.traits.verified or 'none: see its page'} |" for form in writable]
    if faults:
        lines += ["", "## What is not whole", "", *(f"* {fault}" for fault in faults)]
    return "\n".join(lines) + "\n"


def main() -> None:
    page, faults = make_page()
    if "--check" not in sys.argv:
        PAGE.write_text(page, "utf-8")
    print(f"{len(faults)} cells not whole" if faults else "every cell is whole")
    for fault in faults:
        print(" ", fault)
    if faults and "--check" in sys.argv:
        sys.exit(1)


if __name__ == "__main__":
    main()
