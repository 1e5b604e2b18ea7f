"""The scripted conversations that Gemini CLI, Qwen Code, Grok and Kimi Code are asked for in ways of their own.

Each compacts otherwise (by itself, by a command in a run of its own, by a command in ACP mode), and each has another
tool for helpers.
"""

import base64
from typing import Any

from agents.lab.pictures import png
from agents.lab.process import wait_for
from agents.lab.recorder import Recorder, Recording
from agents.lab.script import Call, Step, calls, say
from agents.lab.scrub import SUMMARY_END, SUMMARY_START

__all__ = ["compacted", "forked", "image", "subagent"]

SUMMARY = f"{SUMMARY_START} Theseus holds the thread; knots.txt has two knots, bowline and reef. {SUMMARY_END}"

TASK = "HELPER TASK: count the lines of knots.txt."


def compacted(lab: Recorder) -> Recording:
    """Two turns, a compaction, one more turn."""
    lab.file("knots.txt", "bowline\nreef\n")
    summary = f"<state_snapshot>\n{SUMMARY}\n</state_snapshot>" if lab.agent in ("gemini", "qwen") else SUMMARY
    aside = Step(say(summary).parts, when="state_snapshot|handoff summary|<analysis>", repeat=True)
    lab.asides.append(aside)
    long = "Once there was a thread. " * 60  # what is not longer than its summary is not compacted
    script = [
        calls(lab.kit.shell("cat knots.txt", "KnotsCat01"), text="I read it."),
        say(f"{long}Two knots: bowline and reef."),
        say("No sheepshank there."),
    ]
    prompts = ["Which knots are in knots.txt?", "Is there a sheepshank?"]
    more = [say("After the compaction I still know two knots.")]
    if lab.agent == "kimi":
        with lab.open([*script, aside], acp=True) as session:
            for prompt in prompts:
                session.say(prompt)
            before = lab.said()
            session.compact()
            wait_for(lambda: "full_compaction.complete" in lab.text(), "the compaction")
            session.model.extend(more)
            session.say("What do you still know?")
            session.close()
            session_id, after = str(session.session_id), lab.said()
        if after[0]["text"] == "\n\n".join(prompts):  # stored apart, joined when it is sent
            after[:1] = [after[0] | {"text": prompt} for prompt in prompts]
    else:
        session_id = lab.hold(prompts, script)
        before = lab.said()
        way: dict[str, Any] = {"runs": True} if lab.agent == "qwen" else {"compacts": True}
        with lab.open([aside, *more], resume=session_id, **way) as session:
            if lab.agent == "qwen":
                session.compact()
            session.say("What do you still know?")
            after = lab.said()
    start = next(number for number, one in enumerate(after) if SUMMARY_START in one["text"])
    full = [*before, after[start], *(one for one in after[start + 1 :] if one not in before)]
    notes = "expected is what the model knows after the compaction, expected_full everything that was said."
    return Recording(session_id, str(lab.cwd), after, full, notes=notes)


def forked(lab: Recorder) -> Recording:
    """A session, and a fork of it that goes another way; then the first goes on as well."""
    lab.file("left.txt", "the minotaur\n")
    first = lab.hold(["Which way?"], [say("Left or right?")])
    script = [calls(lab.kit.shell("cat left.txt", "ForkLeft01"), text="Left."), say("A bad way.")]
    with lab.open(script, resume=first, fork=True, runs=True) as session:
        session.say("Go left.")
        fork, expected = str(session.session_id), lab.said()
    with lab.open([say("Right it is.")], resume=first, runs=True) as session:
        session.say("Go right.")
    original = {"session_id": first, "expected": {"messages": lab.said()}}
    notes = "session_id is the fork; original went on after it was forked."
    return Recording(fork, str(lab.cwd), expected, notes=notes, more={"forked_from": first, "original": original})


def image(lab: Recorder) -> Recording:
    """An image in a prompt, where the agent keeps one, and one as a tool's result."""
    path = lab.cwd / "dot.png"
    path.write_bytes(png(30, 60, 220, 64))
    typed = base64.b64encode(png(200, 30, 40, 64)).decode()
    question = "Which colour is the thread?"
    prompt: Any = question if lab.agent == "qwen" else lab.kit.image(question, "image/png", typed)
    script = [say("Red."), calls(lab.kit.look(str(path), "LookDot01")), say("Blue.")]
    way = {"acp": True} if lab.agent in ("gemini", "kimi") else {}
    session = lab.hold([prompt, "And which is dot.png?"], script, **way)
    notes = "One image that a tool returned" + ("." if lab.agent == "qwen" else ", one typed by the user.")
    return Recording(session, str(lab.cwd), lab.said(), notes=notes)


def subagent(lab: Recorder) -> Recording:
    """A helper with a conversation of its own."""
    lab.file("knots.txt", "bowline\nreef\nsheepshank\n")
    told = "The helper counted 3 lines."
    end = Call("complete_task", {"result": {"response": told}}, "call_HelperEnd03")
    helper = [
        # Grok asks for a title of the task as well, with the same words in a frame
        calls(
            lab.kit.shell("wc -l knots.txt", "HelperWc02"),
            when="^HELPER TASK" if lab.agent == "grok" else "HELPER TASK",
        ),
        calls(end, when=r"\b3 knots\.txt") if lab.agent == "gemini" else say(told, when=r"\b3 knots\.txt"),
    ]
    lab.asides += helper
    main = [calls(HELPERS[lab.agent], text="I ask a helper."), say("It has 3 lines.", when="The helper counted")]
    session = lab.hold(["Let a helper count the lines of knots.txt."], [*main, *helper])
    return Recording(session, str(lab.cwd), lab.said(), notes="The helper has a file of its own.")


HELPERS = {
    "gemini": Call("invoke_agent", {"agent_name": "generalist", "prompt": TASK}, "call_CallHelper01"),
    "qwen": Call(
        "agent",
        {"description": "Count", "prompt": TASK, "subagent_type": "general-purpose", "run_in_background": False},
        "call_CallHelper01",
    ),
    "kimi": Call("Agent", {"description": "Count", "prompt": TASK, "subagent_type": "coder"}, "call_CallHelper01"),
    "grok": Call(
        "spawn_subagent", {"prompt": TASK, "description": "Count lines", "background": False}, "call_CallHelper01"
    ),
}
"""How each agent asks a helper."""
