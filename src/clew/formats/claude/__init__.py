"""Claude Code: JSON lines in a tree, one file a session, side files beside it."""

from clew.formats.claude.locate import ClaudeLocate
from clew.formats.claude.reader import read
from clew.formats.claude.rebase import rebase
from clew.formats.claude.records import VERSION
from clew.formats.claude.resume import ClaudeResume
from clew.formats.claude.splice import splice
from clew.formats.claude.writer import write
from clew.formats.protocol import Format, Traits

FORMAT = Format(
    name="claude",
    title="Claude Code",
    traits=Traits(record_kind="line", transport="claude-jsonl", verified=VERSION),
    read=read,
    locate=ClaudeLocate(),
    resume=ClaudeResume(),
    write=write,
    splice=splice,
    rebase=rebase,
)

__all__ = ["FORMAT"]
