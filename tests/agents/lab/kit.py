"""The same wishes as calls of each agent's own tools, so that one scripted conversation serves all agents."""

from typing import Any

from agents.lab.script import Call

__all__ = ["KITS", "ClaudeKit", "CodexKit", "GrokKit", "KimiKit", "OpenCodeKit"]


class ClaudeKit:
    """Claude Code's tools."""

    tools = "Bash,Read,Edit,Write"

    def shell(self, command: str, call_id: str) -> Call:
        """Runs a command."""
        return Call("Bash", {"command": command, "description": "Run one command"}, f"toolu_01{call_id}")

    def read(self, path: str, call_id: str) -> Call:
        """Reads a file."""
        return Call("Read", {"file_path": path}, f"toolu_01{call_id}")

    def edit(self, path: str, old: str, new: str, call_id: str) -> Call:
        """Replaces a line of a file."""
        return Call("Edit", {"file_path": path, "old_string": old, "new_string": new}, f"toolu_01{call_id}")

    def write(self, path: str, text: str, call_id: str) -> Call:
        """Writes a new file."""
        return Call("Write", {"file_path": path, "content": text}, f"toolu_01{call_id}")

    def look(self, path: str, call_id: str) -> Call:
        """Looks at an image."""
        return self.read(path, call_id)

    def image(self, text: str, media_type: str, data: str) -> list[dict[str, Any]]:
        """Makes a prompt of a text and an image."""
        source = {"type": "base64", "media_type": media_type, "data": data}
        return [{"type": "text", "text": text}, {"type": "image", "source": source}]


class CodexKit:
    """Codex's tools."""

    tools = None

    def shell(self, command: str, call_id: str) -> Call:
        """Runs a command."""
        return Call("exec_command", {"cmd": command}, f"call_{call_id}")

    def read(self, path: str, call_id: str) -> Call:
        """Reads a file."""
        return self.shell(f"cat {path}", call_id)

    def edit(self, path: str, old: str, new: str, call_id: str) -> Call:
        """Replaces a line of a file."""
        patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch\n"
        return Call("apply_patch", patch, f"call_{call_id}")

    def write(self, path: str, text: str, call_id: str) -> Call:
        """Writes a new file."""
        lines = "".join(f"+{line}\n" for line in text.splitlines())
        return Call("apply_patch", f"*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n", f"call_{call_id}")

    def look(self, path: str, call_id: str) -> Call:
        """Looks at an image."""
        return Call("view_image", {"path": path}, f"call_{call_id}")

    def image(self, text: str, media_type: str, data: str) -> list[dict[str, Any]]:
        """Makes a prompt of a text and an image."""
        return [{"type": "text", "text": text}, {"type": "image", "url": f"data:{media_type};base64,{data}"}]


class OpenCodeKit:
    """OpenCode's tools."""

    tools = None

    def shell(self, command: str, call_id: str) -> Call:
        """Runs a command."""
        return Call("bash", {"command": command, "description": "Run one command"}, f"call_{call_id}")

    def read(self, path: str, call_id: str) -> Call:
        """Reads a file."""
        return Call("read", {"filePath": path}, f"call_{call_id}")

    def edit(self, path: str, old: str, new: str, call_id: str) -> Call:
        """Replaces a line of a file."""
        return Call("edit", {"filePath": path, "oldString": old, "newString": new}, f"call_{call_id}")

    def write(self, path: str, text: str, call_id: str) -> Call:
        """Writes a new file."""
        return Call("write", {"filePath": path, "content": text}, f"call_{call_id}")

    def look(self, path: str, call_id: str) -> Call:
        """Looks at an image."""
        return self.read(path, call_id)


class GrokKit:
    """Grok's tools."""

    tools = None

    def shell(self, command: str, call_id: str) -> Call:
        """Runs a command."""
        return Call("run_terminal_command", {"command": command, "description": "Run one command"}, f"call_{call_id}")

    def read(self, path: str, call_id: str) -> Call:
        """Reads a file."""
        return Call("read_file", {"target_file": path}, f"call_{call_id}")

    def edit(self, path: str, old: str, new: str, call_id: str) -> Call:
        """Replaces a line of a file."""
        return Call("search_replace", {"file_path": path, "old_string": old, "new_string": new}, f"call_{call_id}")

    def write(self, path: str, text: str, call_id: str) -> Call:
        """Writes a new file."""
        return Call("write", {"file_path": path, "content": text}, f"call_{call_id}")

    def look(self, path: str, call_id: str) -> Call:
        """Looks at an image."""
        return self.read(path, call_id)

    def image(self, text: str, media_type: str, data: str) -> list[dict[str, Any]]:
        """Makes a prompt of a text and an image."""
        return [{"type": "text", "text": text}, {"type": "image", "mimeType": media_type, "data": data}]


class KimiKit:
    """Kimi Code's tools."""

    tools = None

    def shell(self, command: str, call_id: str) -> Call:
        """Runs a command."""
        return Call("Bash", {"command": command}, f"call_{call_id}")

    def read(self, path: str, call_id: str) -> Call:
        """Reads a file."""
        return Call("Read", {"path": path}, f"call_{call_id}")

    def edit(self, path: str, old: str, new: str, call_id: str) -> Call:
        """Replaces a line of a file."""
        return Call("Edit", {"path": path, "old_string": old, "new_string": new}, f"call_{call_id}")

    def write(self, path: str, text: str, call_id: str) -> Call:
        """Writes a new file."""
        return Call("Write", {"path": path, "content": text}, f"call_{call_id}")

    def look(self, path: str, call_id: str) -> Call:
        """Looks at an image."""
        return Call("ReadMediaFile", {"path": path}, f"call_{call_id}")

    def image(self, text: str, media_type: str, data: str) -> list[dict[str, Any]]:
        """Makes a prompt of a text and an image."""
        return [{"type": "text", "text": text}, {"type": "image", "mimeType": media_type, "data": data}]


class GeminiKit:
    """Gemini CLI's tools."""

    tools = None

    def shell(self, command: str, call_id: str) -> Call:
        """Runs a command."""
        return Call("run_shell_command", {"command": command, "description": "Run one command"}, f"call_{call_id}")

    def read(self, path: str, call_id: str) -> Call:
        """Reads a file."""
        return Call("read_file", {"file_path": path}, f"call_{call_id}")

    def edit(self, path: str, old: str, new: str, call_id: str) -> Call:
        """Replaces a line of a file."""
        given = {"file_path": path, "old_string": old, "new_string": new, "instruction": "Replace the line"}
        return Call("replace", given, f"call_{call_id}")

    def write(self, path: str, text: str, call_id: str) -> Call:
        """Writes a new file."""
        return Call("write_file", {"file_path": path, "content": text}, f"call_{call_id}")

    def look(self, path: str, call_id: str) -> Call:
        """Looks at an image."""
        return self.read(path, call_id)

    def image(self, text: str, media_type: str, data: str) -> list[dict[str, Any]]:
        """Makes a prompt of a text and an image."""
        return [{"type": "text", "text": text}, {"type": "image", "mimeType": media_type, "data": data}]


class QwenKit(GeminiKit):
    """Qwen Code's tools."""

    def shell(self, command: str, call_id: str) -> Call:
        """Runs a command."""
        given = {"command": command, "description": "Run one command", "is_background": False}
        return Call("run_shell_command", given, f"call_{call_id}")

    def edit(self, path: str, old: str, new: str, call_id: str) -> Call:
        """Replaces a line of a file."""
        return Call("edit", {"file_path": path, "old_string": old, "new_string": new}, f"call_{call_id}")


class PiKit:
    """pi's tools."""

    tools = None

    def shell(self, command: str, call_id: str) -> Call:
        """Runs a command."""
        return Call("bash", {"command": command}, f"call_{call_id}")

    def read(self, path: str, call_id: str) -> Call:
        """Reads a file."""
        return Call("read", {"path": path}, f"call_{call_id}")

    def edit(self, path: str, old: str, new: str, call_id: str) -> Call:
        """Replaces a line of a file."""
        return Call("edit", {"path": path, "edits": [{"oldText": old, "newText": new}]}, f"call_{call_id}")

    def write(self, path: str, text: str, call_id: str) -> Call:
        """Writes a new file."""
        return Call("write", {"path": path, "content": text}, f"call_{call_id}")

    def look(self, path: str, call_id: str) -> Call:
        """Looks at an image."""
        return self.read(path, call_id)

    def image(self, text: str, media_type: str, data: str) -> list[dict[str, Any]]:
        """Makes a prompt of a text and an image."""
        return [{"type": "text", "text": text}, {"type": "image", "mimeType": media_type, "data": data}]


class DroidKit(PiKit):
    """Droid's tools."""

    def shell(self, command: str, call_id: str) -> Call:
        """Runs a command."""
        told = {"summary": "Run one command", "riskLevelReason": "It only looks.", "riskLevel": "low"}
        return Call("Execute", {"command": command} | told, f"call_{call_id}")

    def read(self, path: str, call_id: str) -> Call:
        """Reads a file."""
        return Call("Read", {"file_path": path}, f"call_{call_id}")

    def edit(self, path: str, old: str, new: str, call_id: str) -> Call:
        """Replaces a line of a file."""
        return Call("Edit", {"file_path": path, "old_str": old, "new_str": new}, f"call_{call_id}")

    def write(self, path: str, text: str, call_id: str) -> Call:
        """Writes a new file."""
        return Call("Create", {"file_path": path, "content": text}, f"call_{call_id}")


class VibeKit(PiKit):
    """Mistral Vibe's tools."""

    def read(self, path: str, call_id: str) -> Call:
        """Reads a file."""
        return Call("read_file", {"path": path}, f"call_{call_id}")

    def edit(self, path: str, old: str, new: str, call_id: str) -> Call:
        """Replaces a line of a file."""
        return Call("edit", {"file_path": path, "old_string": old, "new_string": new}, f"call_{call_id}")

    def write(self, path: str, text: str, call_id: str) -> Call:
        """Writes a new file."""
        return Call("write_file", {"path": path, "content": text}, f"call_{call_id}")


class ClineKit(PiKit):
    """Cline's tools."""

    def shell(self, command: str, call_id: str) -> Call:
        """Runs a command."""
        return Call("run_commands", {"commands": [command]}, f"call_{call_id}")

    def read(self, path: str, call_id: str) -> Call:
        """Reads a file."""
        return Call("read_files", {"files": [{"path": path}]}, f"call_{call_id}")

    def edit(self, path: str, old: str, new: str, call_id: str) -> Call:
        """Replaces a line of a file."""
        return Call("editor", {"path": path, "old_text": old, "new_text": new}, f"call_{call_id}")

    def write(self, path: str, text: str, call_id: str) -> Call:
        """Writes a new file."""
        return Call("editor", {"path": path, "new_text": text}, f"call_{call_id}")


class HermesKit(PiKit):
    """Hermes's tools."""

    def shell(self, command: str, call_id: str) -> Call:
        """Runs a command."""
        return Call("terminal", {"command": command}, f"call_{call_id}")

    def read(self, path: str, call_id: str) -> Call:
        """Reads a file."""
        return Call("read_file", {"path": path}, f"call_{call_id}")

    def edit(self, path: str, old: str, new: str, call_id: str) -> Call:
        """Replaces a line of a file."""
        arguments = {"mode": "replace", "path": path, "old_string": old, "new_string": new}
        return Call("patch", arguments, f"call_{call_id}")

    def write(self, path: str, text: str, call_id: str) -> Call:
        """Writes a new file."""
        return Call("write_file", {"path": path, "content": text}, f"call_{call_id}")


class OpenHandsKit(PiKit):
    """OpenHands' tools. A command runs in a shell of its own: an exit would end the one that the agent keeps."""

    def shell(self, command: str, call_id: str) -> Call:
        """Runs a command."""
        return Call("terminal", {"command": f"({command})", "security_risk": "LOW"}, f"call_{call_id}")

    def read(self, path: str, call_id: str) -> Call:
        """Reads a file."""
        return self._edit({"command": "view", "path": path}, call_id)

    def edit(self, path: str, old: str, new: str, call_id: str) -> Call:
        """Replaces a line of a file."""
        return self._edit({"command": "str_replace", "path": path, "old_str": old, "new_str": new}, call_id)

    def write(self, path: str, text: str, call_id: str) -> Call:
        """Writes a new file."""
        return self._edit({"command": "create", "path": path, "file_text": text}, call_id)

    def _edit(self, arguments: dict[str, Any], call_id: str) -> Call:
        return Call("file_editor", arguments | {"security_risk": "LOW"}, f"call_{call_id}")


KITS: dict[str, Any] = {
    "claude": ClaudeKit(),
    "cline": ClineKit(),
    "codex": CodexKit(),
    "gemini": GeminiKit(),
    "grok": GrokKit(),
    "hermes": HermesKit(),
    "kimi": KimiKit(),
    "opencode": OpenCodeKit(),
    "openhands": OpenHandsKit(),
    "pi": PiKit(),
    "droid": DroidKit(),
    "vibe": VibeKit(),
    "qwen": QwenKit(),
}
"""The kits by the agent's short name."""
