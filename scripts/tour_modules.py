"""Writes the table of modules into docs/tour.md: each module with the first line of its docstring."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tour.md"
START, END = "<!-- modules -->", "<!-- end of modules -->"


def first_line(path: Path) -> str:
    """Returns the first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.replace("|", "\\|").replace("<", "&lt;")


def make_page(page: str) -> str:
    """Returns the page with its table of modules made anew."""
    source = ROOT / "src" / "clew"
    lines = ["", "| module | what it is for |", "| --- | --- |"]
    for path in sorted(source.rglob("*.py"), key=lambda p: (p.parent, p.name != "__init__.py", p.name)):
        name = str(path.relative_to(source)).removesuffix("/__init__.py")
        lines.append(f"| `{name}` | {first_line(path)} |")
    before, rest = page.split(START, 1)
    return before + START + "\n".join([*lines, ""]) + END + rest.split(END, 1)[1]


def main() -> None:
    page = PAGE.read_text("utf-8")
    made = make_page(page)
    if "--check" in sys.argv:
        sys.exit(0 if made == page else "docs/tour.md is not up to date: run scripts/docs")
    PAGE.write_text(made, "utf-8")


if __name__ == "__main__":
    main()
