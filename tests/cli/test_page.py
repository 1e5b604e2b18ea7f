import re
from html.parser import HTMLParser

from clew.cli.document import markdown_lines
from clew.cli.page import MAX_RESULT_LINES, STYLE, page_lines, policy
from clew.verbs.show import ShownCall, ShownResult
from cli_samples import HOSTILE, make_full, make_group, make_shown

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><style>*{}</style></pre></div>"


class Reader(HTMLParser):
    """Collects tags with their attributes and checks that they close as they open."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.open, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(shown):
    reader = Reader()
    reader.feed("\n".join(page_lines(shown)))
    reader.close()
    assert reader.open == []
    return reader


def answered(text):
    call, result = ShownCall("1", "t", ""), ShownResult("1", text, None)
    return make_group("assistant", "", tool_calls=(call,), tool_results=(result,))


def evil_shown(text):
    group = make_group(
        "assistant",
        text,
        kind=text,
        time=text,
        tool_calls=(ShownCall("1", text, '{"path": "a", "old_string": "' + "x" + '", "new_string": "<b>"}'),),
        tool_results=(ShownResult("1", text, True), ShownResult("2", text, None)),
    )
    user = make_group("user", text, time=text)
    return make_shown(
        agent=text, title=text, cwd=text, model=text, created=text, session_id=text, messages=(user, group)
    )


def test_a_page_is_one_whole_document():
    reader = read(make_full())
    assert reader.tags[:2] == ["html", "head"]
    assert {"script", "link", "img", "iframe", "object", "base", "form"}.isdisjoint(reader.tags)
    assert "http" not in "".join(value or "" for name, value in reader.attributes if name in ("href", "src"))


def test_nothing_of_a_session_becomes_a_tag():
    plain, evil = read(evil_shown("x")), read(evil_shown(EVIL))
    assert evil.tags == plain.tags
    assert not any(name.startswith("on") or name == "style" for name, _ in evil.attributes)
    assert EVIL.replace("\n", " ") in "".join(evil.text)


def test_the_policy_allows_the_one_style_sheet_and_nothing_else():
    import base64
    import hashlib

    (rule,) = re.findall("sha256-([^']+)'", policy())
    assert base64.b64decode(rule) == hashlib.sha256(STYLE.encode()).digest()
    assert policy().startswith("default-src 'none'")
    assert STYLE in "\n".join(page_lines(make_shown()))
    assert "script-src" not in policy()


def test_controls_do_not_get_into_documents():
    for lines in (page_lines(evil_shown(HOSTILE)), markdown_lines(evil_shown(HOSTILE))):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u200b\ud800]", "\n".join(lines))


def test_prompts_are_links_to_their_messages():
    page = "\n".join(page_lines(make_shown()))
    targets = re.findall(r'href="#(m\d+)"', page)
    assert targets == ["m1", "m5"]
    assert all(f'id="{target}"' in page for target in targets)


def test_long_results_are_cut_and_counted_unless_full():
    group = make_group(
        "assistant",
        "",
        tool_calls=(ShownCall("1", "t", ""),),
        tool_results=(ShownResult("1", "x\n" * 811 + "x", None),),
    )
    cut = "\n".join(page_lines(make_shown(messages=(group,))))
    assert f"812 lines, {MAX_RESULT_LINES} shown" in cut
    full = "\n".join(page_lines(make_shown(messages=(group,), full=True)))
    assert "812 lines" not in full


def test_a_page_for_another_encoding_is_ascii():
    assert "\n".join(page_lines(make_shown(title="解 é"), ascii_only=True)).isascii()


def test_markdown_keeps_texts_and_fences_what_has_fences(golden):
    golden("show.md", "\n".join(markdown_lines(make_full())) + "\n")
    group = answered("````\nx\n````")
    text = "\n".join(markdown_lines(make_shown(messages=(group,))))
    assert "`````\n````\nx\n````\n`````" in text
