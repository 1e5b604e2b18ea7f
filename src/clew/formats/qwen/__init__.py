"""Qwen Code: a tree of JSON lines, one file a session. The five rooms behind `FORMAT`."""

from clew.formats.protocol import Format, Traits
from clew.formats.qwen.locate import LOCATE
from clew.formats.qwen.reader import AGENT, read
from clew.formats.qwen.rebase import rebase
from clew.formats.qwen.records import VERSION
from clew.formats.qwen.resume import RESUME
from clew.formats.qwen.splice import splice
from clew.formats.qwen.writer import spell_id, write

FORMAT = Format(
    name=AGENT,
    title="Qwen Code",
    traits=Traits(record_kind="line", transport="qwen-chats", verified=VERSION),
    read=read,
    locate=LOCATE,
    resume=RESUME,
    write=write,
    splice=splice,
    rebase=rebase,
    make_id=spell_id,
)

__all__ = ["FORMAT"]
