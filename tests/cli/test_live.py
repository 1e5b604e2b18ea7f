"""Owning a session from the command line: real processes, a home of their own, an agent that only waits.

Scenario 139: what `clew resume` became is the recorded owner; a second one is refused and names it; its end frees the
session. And what convert, restore, ps, log, release, doctor and attach make of that.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "sessions"
SESSION = "e85dadec-e66a-47a7-b6e1-fe99e09fa8a4"
AGENT = "#!/bin/sh\necho ready $$\nread line\necho $line\n"


class Desk:
    """A home with one session, an agent, and the command line in processes of its own."""

    def __init__(self, folder):
        self.home = folder / "me"
        shutil.copytree(FIXTURES / "claude/simple/home", self.home)
        (self.home / "work").mkdir()
        bin_folder = self.home / "bin"
        bin_folder.mkdir()
        for name in ("claude", "codex"):
            (bin_folder / name).write_text(AGENT)
            (bin_folder / name).chmod(0o755)
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{bin_folder}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.running = []

    def words(self, *words):
        return [sys.executable, "-m", "clew", *words]

    def run(self, *words):
        return subprocess.run(
            self.words(*words), cwd=self.home, env=self.env, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )

    def ask(self, *words):
        done = self.run(*words, "--json")
        text = done.stdout or done.stderr
        assert text, done
        return json.loads(text)

    def resume(self, *words):
        """Becomes the agent; returns its process once it runs."""
        process = subprocess.Popen(
            self.words("resume", "e85d", "--cwd", "work", *words),
            cwd=self.home,
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        line = process.stdout.readline()
        assert line == f"ready {process.pid}\n"
        return process

    def end(self, process):
        process.stdin.write("bye\n")
        process.stdin.close()
        process.stdout.read()
        process.stdout.close()
        assert process.wait(20) == 0
        self.running.remove(process)

    def host(self):
        return (self.home / ".local/share/clew/host").read_text().split()[0]

    def become_host(self, name):
        """Makes this machine another host, as far as clew can tell."""
        path = self.home / ".local/share/clew/host"
        path.write_text(re.sub(r"^h[0-9a-f]{16}", name, path.read_text()))


@pytest.fixture
def desk(tmp_path):
    yield from at_desk(tmp_path)


@pytest.fixture
def quick_desk(tmp_path):
    """A desk in memory where there is one, for a thousand commits."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield from at_desk(tmp_path)
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield from at_desk(Path(name))


def at_desk(folder):
    made = Desk(folder)
    yield made
    for process in made.running:
        process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait(20)


def test_a_second_resume_is_refused_while_the_first_lives_and_granted_after(desk):
    first = desk.resume()
    refused = desk.ask("resume", "e85d", "--cwd", "work")["error"]
    assert (refused["status"], refused["code"], refused["reason"]) == (5, "conflict", "owner_alive")
    assert refused["pid"] == first.pid
    assert str(first.pid) in refused["message"]
    assert refused["hint"]
    assert desk.ask("attach", "e85d", "--dry-run")["decision"] == "refused"
    desk.end(first)
    plan = desk.ask("attach", "e85d", "--dry-run")
    assert (plan["fence_now"], plan["fence"]) == (1, 3)
    assert plan["evidence"] == "pid_absent"
    second = desk.resume()
    assert desk.ask("ps")["sessions"][0]["fence"] == 3
    desk.end(second)


def test_a_killed_agent_frees_its_session(desk):
    first = desk.resume()
    os.kill(first.pid, signal.SIGKILL)
    first.wait(20)
    desk.end(desk.resume())


def test_the_agent_carries_its_token_and_the_store_is_closed(desk):
    first = desk.resume()
    environment = Path(f"/proc/{first.pid}/environ")
    if environment.exists():
        assert b"CLEW_SPAWN_TOKEN=" in environment.read_bytes()
        links = [os.readlink(path) for path in Path(f"/proc/{first.pid}/fd").iterdir()]
        assert not [link for link in links if ".db" in link or "clew/" in link]
    desk.end(first)


def test_nothing_is_placed_into_a_session_that_somebody_has_open(desk):
    made = desk.ask("convert", "e85d", "--to", "codex", "--cwd", str(desk.home / "work"))
    path = Path(made["to"]["paths"][0])
    codex = subprocess.Popen(
        desk.words("resume", made["to"]["session_id"], "--cwd", "work"),
        cwd=desk.home,
        env=desk.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    desk.running.append(codex)
    assert codex.stdout.readline() == f"ready {codex.pid}\n"
    grown = next((desk.home / ".claude/projects").glob("*/*.jsonl"))
    lines = grown.read_text().splitlines()
    last = json.loads(lines[-1]) if "uuid" in lines[-1] else None
    before = path.read_bytes()
    if last is None:
        last = next(json.loads(line) for line in reversed(lines) if '"uuid"' in line)
    said = {
        **{k: v for k, v in last.items() if k not in ("message", "requestId")},
        "type": "user",
        "parentUuid": last["uuid"],
        "uuid": "11111111-1111-4111-8111-111111111111",
        "message": {"role": "user", "content": "one more thing"},
    }
    grown.write_text("\n".join([*lines, json.dumps(said)]) + "\n")
    refused = desk.ask("convert", "e85d", "--to", "codex")["error"]
    assert (refused["code"], refused["reason"], refused["pid"]) == ("conflict", "owner_alive", codex.pid)
    assert path.read_bytes() == before
    moved = path.rename(path.with_suffix(".aside"))
    refused = desk.ask("restore", made["to"]["session_id"])["error"]
    assert (refused["code"], refused["pid"]) == ("conflict", codex.pid)
    assert not path.exists()
    moved.rename(path)
    desk.end(codex)
    done = desk.ask("convert", "e85d", "--to", "codex")
    assert done["to"]["session_id"] == made["to"]["session_id"]
    assert path.read_bytes() != before
    links = strand(desk, "codex")["chain"]
    assert [(link["origin"], link["minted_at_fence"]) for link in links] == [
        ("created", 0),
        ("resumed", 1),
        ("resumed", 2),
    ]


def strand(desk, agent):
    import apsw

    connection = apsw.Connection(str(desk.home / ".local/share/clew/records.db"), apsw.SQLITE_OPEN_READONLY)
    try:
        return json.loads(connection.execute("SELECT body FROM strands WHERE agent = ?", (agent,)).fetchall()[0][0])
    finally:
        connection.close()


def test_looking_changes_nothing(desk):
    """Scenario 137 for the command line: ps, log, doctor and a dry run leave the lease as it is."""
    first = desk.resume()
    before = strand(desk, "claude")
    for words in (("ps",), ("log", "e85d"), ("doctor",), ("attach", "e85d", "--dry-run"), ("ls", "--all")):
        assert desk.run(*words).returncode == 0, words
    assert strand(desk, "claude") == before
    row = desk.ask("ps")["sessions"][0]
    assert (row["state"], row["pid"], row["session_id"]) == ("live", first.pid, SESSION)
    entries = desk.ask("log", "e85d")["entries"]
    assert [entry["what"] for entry in entries] == ["adopted", "resumed", "now"]
    desk.end(first)
    assert desk.ask("ps")["sessions"][0]["state"] == "exited"
    assert strand(desk, "claude") == before


def test_a_living_owner_is_not_released(desk):
    first = desk.resume()
    refused = desk.ask("release", "e85d", "--yes")["error"]
    assert (refused["code"], refused["pid"]) == ("conflict", first.pid)
    desk.end(first)
    done = desk.ask("release", "e85d")
    assert (done["act"], done["evidence"]) == ("exited", "pid_absent")
    assert desk.ask("release", "e85d")["act"] == "free"


def test_a_session_of_a_host_that_is_gone_is_declared_free(desk):
    first = desk.resume()
    gone = desk.host()
    desk.become_host("hbbbbbbbbbbbbbbbb")
    refused = desk.ask("resume", "e85d", "--cwd", "work")["error"]
    assert (refused["code"], refused["reason"]) == ("ownership_unknown", "owner_unproven")
    assert gone in refused["hint"]
    row = desk.ask("ps")["sessions"][0]
    assert (row["state"], row["host"]) == ("elsewhere", gone)
    findings = desk.run("doctor", "--json")
    assert findings.returncode == 1
    problem = next(one for one in json.loads(findings.stdout)["findings"] if one["level"] == "problem")
    assert f"--declare-gone {gone}" in problem["do"]
    assert desk.ask("release", "e85d", "--declare-gone", "h" + "0" * 16)["error"]["status"] == 2
    asked = desk.ask("release", "e85d", "--declare-gone", gone)["error"]
    assert asked["code"] == "not_confirmed"
    done = desk.ask("release", "e85d", "--declare-gone", gone, "--yes")
    assert done["act"] == "declare_gone"
    assert done["evidence"].startswith("declared by ")
    assert gone in done["warning"]
    assert strand(desk, "claude")["location"]["host"] == "hbbbbbbbbbbbbbbbb"
    # From where the session was before it is another host's now, and nobody is told otherwise.
    desk.become_host(gone)
    plan = desk.ask("attach", "e85d", "--dry-run")
    assert (plan["decision"], plan["reason"]) == ("refused", "identity_mismatch")
    assert "--declare-gone hbbbbbbbbbbbbbbbb" in plan["hint"]
    assert desk.ask("resume", "e85d", "--cwd", "work")["error"]["reason"] == "identity_mismatch"
    desk.become_host("hbbbbbbbbbbbbbbbb")
    desk.end(desk.resume())
    desk.end(first)


def test_declaring_this_host_gone_is_a_wrong_call(desk):
    desk.end(desk.resume())
    answer = desk.ask("release", "e85d", "--declare-gone", desk.host(), "--yes")["error"]
    assert answer["status"] == 2


def test_a_session_that_nobody_opened_has_nothing_to_release(desk):
    assert desk.ask("release", "e85d")["error"]["code"] == "not_found"


def test_an_agent_that_cannot_be_started_gives_the_session_back(desk):
    (desk.home / "bin/claude").write_text("#!/nonexistent/interpreter\n")
    assert desk.ask("resume", "e85d", "--cwd", "work")["error"]["code"] == "agent_missing"
    lease = strand(desk, "claude")["lease"]
    assert (lease["claim"], lease["settlement_retry"]) == ("released", None)


def test_a_backup_of_the_data_folder_grants_no_fence_twice(desk):
    data, kept = desk.home / ".local/share/clew", desk.home / "backup"
    assert desk.ask("store", "restored")["error"]["status"] == 3
    fences = []

    def open_once():
        process = desk.resume()
        fences.append(desk.ask("ps")["sessions"][0]["fence"])
        desk.end(process)

    def put_back(*also):
        for folder in (data, *also):
            shutil.rmtree(folder)
        shutil.copytree(kept, data)

    open_once()
    shutil.copytree(data, kept)
    open_once()
    put_back()
    open_once()
    told = [one["found"] for one in desk.ask("doctor", "-v")["findings"]]
    assert any("came back from a backup once" in one for one in told)
    assert any(".local/state/clew/records-" in one for one in told)
    # The whole home went back, file by file: nothing is left that could notice it, but a person.
    inode = (data / "records.db").stat().st_ino
    for path in kept.iterdir():
        (data / path.name).write_bytes(path.read_bytes())
    shutil.rmtree(desk.home / ".local/state")
    assert (data / "records.db").stat().st_ino == inode
    floor = desk.ask("store", "restored")["fence_floor"]
    open_once()
    assert fences == sorted(set(fences))
    assert fences[-1] >= floor
    assert "no fence below" in desk.run("store", "restored").stdout


def test_three_hundred_resumes_keep_one_record(quick_desk):
    """The chain is full after 256 links: it is kept in a strand of its own, and the record goes on."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from clew.formats.protocol import Home\n"
        "from clew.formats.registry import get_format\n"
        "from clew.platform.clock import SystemClock\n"
        "from clew.verbs.context import Context\n"
        "from clew.verbs.own import disown, own_session\n"
        "home = Path(sys.argv[1])\n"
        "with Context(Home(home), home / 'data', cwd=home, clock=SystemClock()) as ctx:\n"
        "    for _ in range(300):\n"
        "        owned = own_session(ctx, get_format('claude'), sys.argv[2], str(home))\n"
        "        disown(ctx, owned, 'only looking')\n"
        "    rows = ctx.stores.records.strands()\n"
        "    print(len(rows), [row.claim for row in rows], len(ctx.stores.records.edges()), owned.fence)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(quick_desk.home), SESSION],
        env=quick_desk.env,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "2 ['released', None] 1 599\n", done.stderr
