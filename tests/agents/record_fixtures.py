"""Records tests/fixtures/sessions with the real agents, from our own scripted conversations.

    python tests/agents/record_fixtures.py [AGENT/CASE ...]

For maintainers, when an agent's version changes; the fixtures themselves are in the repository. The recording happens
in /home/dev1, which must not exist and is removed afterwards, so that no path of a real machine gets into a fixture.
What the agents' vendors wrote is then replaced by placeholders (`agents.lab.scrub`).
"""

import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from agents.install import AGENTS, install_agent
from agents.lab.conversations import CASES, FOLDER
from agents.lab.recorder import Recorder, Recording
from agents.lab.scrub import clean, scrub_home

HOME = Path("/home/dev1")

TARGET = Path(__file__).resolve().parent.parent / "fixtures" / "sessions"


def record(agent: str, name: str, target: Path = TARGET) -> Path:
    """Records one case and returns its folder."""
    HOME.mkdir()
    try:
        cwd = HOME / "proj" / FOLDER.get(name, name)
        recorder = Recorder(agent, HOME, cwd)
        recording = CASES[agent][name](recorder)
        folder = target / agent / name
        shutil.rmtree(folder, ignore_errors=True)
        recorder.collect(folder / "home")
        scrub_home(agent, folder / "home")
        write_case(folder, agent, name, recording)
        return folder
    finally:
        shutil.rmtree(HOME)


def write_case(folder: Path, agent: str, name: str, recording: Recording) -> None:
    """Writes the description of a case."""
    case = {
        "agent": agent,
        "version": AGENTS[agent].version,
        "case": name,
        "session_id": recording.session_id,
        "cwd": recording.cwd,
        "expected": {"messages": recording.expected},
    }
    if recording.expected_full is not None:
        case["expected_full"] = {"messages": recording.expected_full}
    case |= recording.more
    case["notes"] = recording.notes
    case = clean(case)
    # Escapes for all that is not ASCII: a lone surrogate cannot be written otherwise.
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n", encoding="ascii")


def main(names: list[str]) -> int:
    """Records the named cases, all when none is named."""
    wanted = names or [f"{agent}/{name}" for agent, cases in CASES.items() for name in cases]
    for one in wanted:
        agent, _, name = one.partition("/")
        install_agent(agent)
        folder = record(agent, name)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{one}: {size:,} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
