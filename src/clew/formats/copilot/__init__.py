"""GitHub Copilot: events of its command line, chats of VS Code, traces of Visual Studio. Read, kept and restored."""

from clew.formats.copilot.reader import AGENT, read
from clew.formats.copilot.shelf import SHELF
from clew.formats.protocol import Format, Traits
from clew.formats.shelf import Aside

FORMAT = Format(
    name=AGENT,
    title="GitHub Copilot",
    traits=Traits(record_kind="line", transport=AGENT, any_uuid=False, writes=False, offline=False),
    read=read,
    locate=SHELF,
    resume=Aside(),
)

__all__ = ["FORMAT"]
