"""The digest of a segment and the id of a source (both used by the store, both with fixed vectors)."""

from __future__ import annotations

from clew.conversation.digest import bytes_digest, framed_digest, segment_digest, source_id
from clew.ids import NativeId

RECORDS = (b'{"t":"meta"}\n', b'{"t":"u","x":"hi"}\n')
VECTOR = "020dc9c82170a016f882590be5acd9daeb5e2e176a92a1fafdc026580f454f4a"


def test_segment_digest_gives_the_vector_of_the_residue_rules():
    assert segment_digest(RECORDS) == VECTOR
    assert framed_digest(tuple(map(len, RECORDS)), b"".join(RECORDS)) == VECTOR
    assert framed_digest(tuple(map(len, RECORDS)), memoryview(b"".join(RECORDS))) == VECTOR


def test_framing_tells_where_records_end():
    assert segment_digest((b"ab", b"c")) != segment_digest((b"a", b"bc"))
    assert segment_digest(()) != segment_digest((b"",))


def test_lengths_that_do_not_cover_the_data_match_nothing():
    assert framed_digest((1,), b"ab") == ""
    assert framed_digest((3,), b"ab") == ""


def test_source_id_frames_its_parts():
    assert source_id("ab", NativeId("c"), b"r") != source_id("a", NativeId("bc"), b"r")
    assert source_id("ab", NativeId("c"), b"r") != source_id("ab", NativeId("cr"), b"")
    assert source_id("ab", None, b"r") == source_id("ab", NativeId(""), b"r")


def test_source_id_takes_ids_that_are_no_text():
    assert len(source_id("codex", NativeId("\ud800"), b"\xff")) == 64


def test_bytes_digest_is_plain():
    assert bytes_digest(b"").startswith("af1349b9f5f9a1a6")
