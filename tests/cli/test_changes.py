from clew.cli.changes import MAX_COMPARED, Change, changes_of


def test_an_old_and_a_new_text():
    (change,) = changes_of({"file_path": "/x/app.py", "old_string": "a\nb\nc", "new_string": "a\nB\nc\nd"})
    assert change.path == "/x/app.py"
    assert change.lines == ((" ", "a"), ("-", "b"), ("+", "B"), (" ", "c"), ("+", "d"))
    assert (change.added, change.removed) == (2, 1)


def test_a_list_of_edits():
    edits = [{"old_string": "a", "new_string": "b"}, {"oldText": "c", "newText": "d"}, "odd", {}]
    (change,) = changes_of({"path": "f", "edits": edits})
    assert change.lines == (("-", "a"), ("+", "b"), ("-", "c"), ("+", "d"))


def test_a_whole_new_text():
    assert changes_of({"file_path": "f", "content": "a\nb\n"}) == (Change("f", (("+", "a"), ("+", "b"))),)


PATCH = """*** Begin Patch
*** Update File: src/a.py
@@ def load():
 keep
-old
+new
*** Add File: b.txt
+one
*** End Patch
"""


def test_a_patch_as_text_and_as_argument():
    expected = (
        Change("src/a.py", ((" ", "@@ def load():"), (" ", "keep"), ("-", "old"), ("+", "new"))),
        Change("b.txt", (("+", "one"),)),
    )
    assert changes_of(PATCH) == expected
    assert changes_of({"input": PATCH}) == expected


def test_a_unified_diff():
    (change,) = changes_of({"patch": "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n"})
    assert change.path == "x.py"
    assert (change.added, change.removed) == (1, 1)


def test_huge_texts_are_not_compared_line_by_line():
    old = "\n".join(str(n) for n in range(MAX_COMPARED))
    (change,) = changes_of({"path": "f", "old_string": old, "new_string": old + "\nx"})
    assert (change.added, change.removed) == (MAX_COMPARED + 1, MAX_COMPARED)


def test_what_edits_nothing_changes_nothing():
    for arguments in (
        {},
        {"command": "ls"},
        {"file_path": "f"},
        "free text",
        {"content": "x"},
        {"edits": 3, "path": "f"},
    ):
        assert changes_of(arguments) == ()
