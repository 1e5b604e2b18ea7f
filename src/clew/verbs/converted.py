"""What `clew convert` answers: both ends, how the target is resumed, and what was restored, rendered and left out.

Values only, as the JSON has them (docs/cli.md).
"""

from __future__ import annotations

import msgspec

from clew.conversation.loss import Loss


class End(msgspec.Struct, frozen=True):
    """One end of a conversion, as the JSON has it."""

    agent: str
    session_id: str
    path: str = ""
    cwd: str = ""
    paths: tuple[str, ...] = ()


class Command(msgspec.Struct, frozen=True):
    """How the target is resumed: the command line, and the folder to run it in."""

    argv: tuple[str, ...]
    cwd: str


class Report(msgspec.Struct, frozen=True):
    """What was restored, rendered and left out, as the JSON has it. A message counts without its results.

    `messages`, `calls` and `results` are those of the whole conversation.
    """

    mode: str
    restored_messages: int
    rendered_messages: int
    losses: tuple[Loss, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str = ""
    invented: int = 0
    retries: int = 0
    messages: int = 0
    calls: int = 0
    results: int = 0


class Converted(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """The answer of `convert` (docs/cli.md)."""

    from_: End
    to: End
    resume: Command
    report: Report
    thread: str
    written: bool = True
