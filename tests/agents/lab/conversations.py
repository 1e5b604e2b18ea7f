"""The scripted conversations of the fixtures: one function a case, for all agents where they can be asked the same.

Everything said here is invented for this project.
"""

from collections.abc import Callable
from typing import Any

from agents.lab.recorder import Recorder, Recording
from agents.lab.script import Step, Text, calls, say

__all__ = ["CASES", "FOLDER"]

FOLDER = {"unicode": "fil d'Ariane π 漢字", "interrupted-tool": "spindle", "forked-mid": "forks"}
"""Working folders that are not simply the case's name."""


def simple(lab: Recorder) -> Recording:
    """Three turns of text, the first with reasoning."""
    script = [
        Step([*_thought("The word is old."), Text("A clew is a ball of thread.")]),
        say("Theseus laid it out behind him.\n\nSo he found the way:\n- in by the thread\n- out by the thread"),
        say("Ariadne gave it to him."),
    ]
    prompts = ["Good morning. What is a clew?", "What was it for?", "Thanks. Whose idea was it?"]
    session = lab.hold(prompts, script)
    return Recording(session, str(lab.cwd), lab.said(), notes="Text alone; reasoning before the first answer.")


def _thought(text: str) -> list[Any]:
    from agents.lab.script import Reasoning

    return [Reasoning(text)]


def tools(lab: Recorder) -> Recording:
    """A call with its result, parallel calls that end in another order, a failing one, an edit, a new file."""
    kit = lab.kit
    path = str(lab.file("thread.py", 'LENGTH = 7\n\nprint("thread", LENGTH)\n'))
    lab.file("knots.txt", "bowline\nreef\n")
    script = [
        calls(kit.shell("ls && cat thread.py", "ToolsList01"), text="I look first.", reasoning="What is there?"),
        calls(kit.read(path, "ToolsRead02")),
        calls(kit.edit(path, "LENGTH = 7", "LENGTH = 9", "ToolsEdit03"), reasoning="Seven is too short."),
        calls(
            kit.shell("sleep 0.7; cat knots.txt", "ToolsSlow04"),
            kit.shell("head -n 1 thread.py", "ToolsFast05"),
            kit.shell("cat no-such-file.txt", "ToolsFail06"),
            text="Three checks at once.",
        ),
        calls(kit.write(str(lab.cwd / "notes.md"), "# Notes\n\n- longer thread\n", "ToolsMake07")),
        calls(kit.shell("python3 thread.py; exit 4", "ToolsExit08")),
        say("Done: the thread is 9 long; no-such-file.txt is missing."),
    ]
    session = lab.hold(["Make the thread longer, check it, and write notes.md."], script)
    return Recording(
        session,
        str(lab.cwd),
        lab.said(),
        notes="One turn: three parallel calls (the first ends last, the third fails), an edit, a new file, an exit 4.",
    )


SHARED: dict[str, Callable[[Recorder], Recording]] = {"simple": simple, "tools": tools}

CASES: dict[str, dict[str, Callable[[Recorder], Recording]]] = {"claude": SHARED, "codex": SHARED}
"""The cases by agent and name."""
