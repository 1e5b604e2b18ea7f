"""Mistral Vibe: the JSON lines of 2.x, and the unified store that 3.x takes them into."""

from clew.formats.protocol import Format, Traits
from clew.formats.vibe.locate import VibeLocate
from clew.formats.vibe.reader import read
from clew.formats.vibe.records import VERSION
from clew.formats.vibe.resume import VibeResume
from clew.formats.vibe.splice import rebase, splice
from clew.formats.vibe.writer import write

FORMAT = Format(
    name="vibe",
    title="Mistral Vibe",
    traits=Traits(
        record_kind="line",
        transport="vibe-jsonl",
        holds_images=False,
        holds_result_images=False,
        verified=VERSION,
    ),
    read=read,
    locate=VibeLocate(),
    resume=VibeResume(),
    write=write,
    splice=splice,
    rebase=rebase,
)

__all__ = ["FORMAT"]
