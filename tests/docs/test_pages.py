"""The pages say what is so: links lead somewhere, every format has its page, generated parts are up to date."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from clew.formats.registry import format_names

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "fixtures" / "README.md"])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_table_of_modules_is_up_to_date() -> None:
    tour = (ROOT / "docs" / "tour.md").read_text("utf-8")
    assert runpy.run_path(str(ROOT / "scripts" / "tour_modules.py"))["make_page"](tour) == tour, "run scripts/docs"


@pytest.mark.parametrize("name", format_names())
def test_every_format_has_its_page(name: str) -> None:
    assert (ROOT / "docs" / "formats" / f"{name}.md").exists()


def test_the_scripts_that_the_pages_name_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"scripts/[a-z-]+(?![\w/.-])", page.read_text("utf-8")):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_nothing_names_where_or_how_it_was_made() -> None:
    patterns = re.compile(r"/work/(?:main|shared|steering|\.library|\.mirror)|pypi\.org|registry\.npmjs|deb\.debian")
    for path in [*ROOT.glob("src/**/*.py"), *PAGES, *ROOT.glob("scripts/*"), ROOT / ".ci" / "run"]:
        if path.is_file():
            found = patterns.search(path.read_text("utf-8", "replace"))
            assert found is None, f"{path.relative_to(ROOT)}: {found.group() if found else ''}"
