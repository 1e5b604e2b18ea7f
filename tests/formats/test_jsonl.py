"""Framing of JSON lines: every byte in exactly one record, whatever is in them; nothing raises, nothing hangs."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clew.conversation.loss import Damage
from clew.conversation.source import Records, Stream
from clew.formats.jsonl import JsonLines, line_ends


class Row(msgspec.Struct, gc=False):
    """A record type like a format's own: a member that every record has, and a payload that stays raw."""

    type: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"null")


def frame(data: bytes, *, growing: bool = False, start: int = 0) -> tuple[list[bytes], list[Row | None], list[Damage]]:
    records, damage = Records(), list[Damage]()
    lines = JsonLines(records, Stream("s.jsonl", data), msgspec.json.Decoder(Row), damage, growing=growing, start=start)
    numbered = list(lines)
    first = 1 if start else 0
    assert [number for number, _ in numbered] == list(range(first, len(records)))
    return [bytes(records[i]) for i in range(len(records))], [value for _, value in numbered], damage


def types(data: bytes) -> list[str | None]:
    return [None if row is None else row.type for row in frame(data)[1]]


def line(name: str, payload: object = None) -> bytes:
    return json.dumps({"type": name, "payload": payload}, ensure_ascii=False).encode()


pieces = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [
            b"\n",
            b"\r\n",
            b"\n\n",
            b" \t\n",
            b"\xef\xbb\xbf",
            b"\x00" * 7,
            b"\xff",
            b"{",
            b'{"',
            b'{"type":"a","payload":"cut he',
            b'{"type":"\\',
            b'\\"',
            b"}",
            b"]",
            b"[1]\n",
            b"null\n",
            b'{"type":5}\n',
            b'{"type":"lone \\ud800"}\n',
            b'{"type":"bad \xff"}\n',
            b'{"type":"raw \x01 control"}\n',
            b'{"n":NaN}\n',
            b'{"n":1e999,"m":' + b"9" * 400 + b"}\n",
            b'{"payload":' + b"[" * 3000,
        ]
    ),
    st.text(max_size=8).map(lambda text: line("t", text) + b"\n"),
    st.text(max_size=8).map(lambda text: line("t", text)),
)


@given(st.lists(pieces, max_size=12).map(b"".join), st.booleans())
@example(b'{"type":"a"}{"type":"b"}{"type":"c', False)
@example(b"{}{}\n{} {", False)
@example(b"\xef\xbb\xbf{}{}x", False)
def test_every_byte_lies_in_exactly_one_record(data: bytes, growing: bool) -> None:
    cut, values, damage = frame(data, growing=growing)
    assert b"".join(cut) == data
    assert all(cut)
    assert len(values) == len(cut)
    offset = 0
    places: list[tuple[int, int]] = []
    for record in cut:
        places.append((offset, offset + len(record)))
        offset += len(record)
    for harm in damage:
        begin, end = places[harm.record]
        assert begin <= harm.offset < end
        assert harm.file == "s.jsonl"
        assert harm.sort
        assert 1 <= harm.line <= data.count(b"\n") + 1


@given(st.lists(pieces, max_size=12).map(b"".join))
def test_no_record_holds_two_lines(data: bytes) -> None:
    assert all(b"\n" not in record[:-1] for record in frame(data)[0])


@given(st.lists(pieces, max_size=10).map(b"".join))
def test_what_is_no_record_and_not_blank_is_reported(data: bytes) -> None:
    cut, values, damage = frame(data)
    reported = {harm.record for harm in damage}
    for number, (record, value) in enumerate(zip(cut, values, strict=True)):
        if value is None and record.strip(b" \t\r\n"):
            assert number in reported


@given(st.lists(st.text(max_size=10).map(lambda text: line("x", text)), min_size=1, max_size=6), st.data())
def test_whole_lines_are_read_whole_wherever_the_last_is_cut(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(one + b"\n" for one in lines)
    cut = data.draw(st.integers(0, len(whole)))
    records, values, _ = frame(whole[:cut])
    complete = whole[:cut].count(b"\n")
    assert b"".join(records) == whole[:cut]
    assert all(value is not None for value in values[:complete])


def test_line_ends() -> None:
    assert list(line_ends(b"")) == []
    assert list(line_ends(b"a\n\nb")) == [2, 3, 4]
    assert list(line_ends(b"a\nb\n", 2)) == [4]


def test_a_line_longer_than_a_block_is_one_record() -> None:
    data = line("big", "x" * (5 << 20)) + b"\n" + line("small") + b"\n"
    assert types(data) == ["big", "small"]


def test_carriage_returns_blank_lines_and_a_missing_last_newline_belong_to_their_records() -> None:
    data = line("a") + b"\r\n\r\n" + line("b") + b"\n \t\n" + line("c")
    cut, values, damage = frame(data)
    assert cut == [line("a") + b"\r\n", b"\r\n", line("b") + b"\n", b" \t\n", line("c")]
    assert [v and v.type for v in values] == ["a", None, "b", None, "c"]
    assert damage == []


def test_a_byte_order_mark_is_told_and_costs_nothing() -> None:
    cut, values, damage = frame(b"\xef\xbb\xbf" + line("a") + b"\n")
    assert cut == [b"\xef\xbb\xbf" + line("a") + b"\n"]
    assert values[0] is not None
    assert [(d.sort, d.lost) for d in damage] == [("byte-order mark", False)]


def test_zero_bytes_before_behind_and_instead_of_a_record() -> None:
    data = b"\x00" * 9 + line("a") + b"\n" + line("b") + b"\x00" * 5 + b"\n" + b"\x00" * 400 + b"\n" + line("c") + b"\n"
    cut, _, damage = frame(data)
    assert types(data) == ["a", "b", None, "c"]
    assert len(cut) == 4
    assert [(d.record, d.sort, d.lost) for d in damage] == [
        (0, "nul run", False),
        (1, "nul run", False),
        (2, "nul run", True),
    ]


def test_fused_records_are_told_apart() -> None:
    one, two, three = line("a", {"b": "}{"}), line("b", ["{"]), line("c")
    cut, _, damage = frame(one + two + three + b"\n")
    assert cut == [one, two, three + b"\n"]
    assert types(one + two + three) == ["a", "b", "c"]
    assert [(d.sort, d.lost) for d in damage] == [("missing newline", False)]


def test_a_whole_record_behind_a_torn_one_is_recovered() -> None:
    torn, whole = b'{"uuid":"u-1","type":"x","payload":"half of i', line("y", "z")
    cut, values, damage = frame(torn + whole + b"\n")
    assert cut == [torn, whole + b"\n"]
    assert values[0] is None
    assert values[1] is not None
    assert [(d.record, d.sort, d.detail, d.lost) for d in damage] == [(0, "fragment", "id u-1", True)]


@pytest.mark.parametrize("end", [b"", b"\n", b"\n" + line("y") + b"\n"])
@pytest.mark.parametrize(
    "torn",
    [
        b'{"type":"x","payload":{"type":"inner"}',
        b'{"type":"x","payload":[{"type":"inner"}',
        b'{"type":"x","payload":[{"type":"one"}, {"type":"inner"}',
        b'{"type":"x","note":"{\\"a\\":","payload": {"type":"inner"}',
    ],
)
def test_a_value_inside_a_torn_record_is_no_record(torn: bytes, end: bytes) -> None:
    cut, values, damage = frame(torn + end)
    assert values[0] is None
    assert cut[0] == torn + end[:1]
    assert damage[0].sort == ("torn tail" if not end else "not json")
    assert len(damage) == 1


@pytest.mark.parametrize(
    "torn", [b'{"type":"x","payload":"as in: ', b'{"type":"x","payload":"a \\", [', b'{"type":"x"']
)
def test_a_record_torn_in_a_text_hides_no_whole_one(torn: bytes) -> None:
    cut, values, _ = frame(torn + line("y") + b"\n")
    assert cut == [torn, line("y") + b"\n"]
    assert [v and v.type for v in values] == [None, "y"]


def test_two_whole_records_behind_a_torn_one_are_no_values_of_it() -> None:
    cut, values, _ = frame(b'{"type":"x","payload":[' + line("y") + line("z") + b"\n")
    assert [v and v.type for v in values] == [None, "y", "z"]
    assert len(cut) == 3


def test_whole_records_in_front_of_a_torn_one_are_recovered() -> None:
    one, two, torn = line("a"), line("b") + b" ", b'{"uuid":"u-2","type":"c'
    cut, values, damage = frame(one + two + torn)
    assert cut == [one, two, torn]
    assert [v and v.type for v in values] == ["a", "b", None]
    assert [(d.record, d.offset, d.sort, d.detail) for d in damage] == [
        (2, len(one + two), "torn tail", "id u-2"),
    ]
    _, values, damage = frame(one + torn + b"\n" + two + b"\n")
    assert [v and v.type for v in values] == ["a", None, "b"]
    assert [(d.record, d.sort) for d in damage] == [(1, "fragment")]
    _, _, damage = frame(one + torn, growing=True)
    assert [(d.record, d.sort, d.lost) for d in damage] == [(1, "still being written", False)]


def test_an_unfinished_last_line_is_damage_only_where_nobody_writes() -> None:
    data = line("a") + b"\n" + b'{"type":"b'
    assert [(d.sort, d.lost) for d in frame(data)[2]] == [("torn tail", True)]
    assert [(d.sort, d.lost) for d in frame(data, growing=True)[2]] == [("still being written", False)]
    inside = b'{"type":"b\n' + line("a") + b"\n"
    assert [d.sort for d in frame(inside, growing=True)[2]] == ["not json"]


@pytest.mark.parametrize(
    ("data", "sort"),
    [
        (b"nonsense", "not json"),
        (b"[1,2]", "not an object"),
        (b'"text"', "not an object"),
        (b'{"n":NaN}', "not json"),
        (b'{"type":{"not":"a string"}}', "foreign record"),
        (b"[" * 100_000, "too deep"),
        (b'{"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too deep"),
        (b'{"a":' * 100_000, "too deep"),
    ],
)
def test_what_is_no_record_says_why(data: bytes, sort: str) -> None:
    cut, values, damage = frame(data + b"\n" + line("next") + b"\n")
    assert len(cut) == 2
    assert values[0] is None
    assert values[1] is not None
    assert [d.sort for d in damage] == [sort]


@pytest.mark.parametrize("value", [b"9" * 4000, b"1e400", b"-0.0", b"1" + b"0" * 300, b"0.1e-500"])
def test_odd_numbers_in_what_is_not_looked_at_harm_nothing(value: bytes) -> None:
    data = b'{"type":"n","payload":{"n":' + value + b'},"unknown":' + value + b"}\n"
    _, values, damage = frame(data)
    assert values[0] is not None
    assert bytes(values[0].payload) == b'{"n":' + value + b"}"
    assert damage == []


def test_texts_that_no_strict_decoder_takes_are_read_all_the_same() -> None:
    data = b'{"type":"a\xffb"}\n{"type":"a\\ud800b"}\n{"type":"a\x01b"}\n{"type":"\\ud83d\\ude80"}\n'
    _, values, damage = frame(data)
    assert [v and v.type for v in values] == ["a\ufffdb", "a\ufffdb", "a\x01b", "\U0001f680"]
    assert [(d.sort, d.lost) for d in damage] == [("bad utf-8", True)]


def test_reading_goes_on_from_a_line() -> None:
    data = line("a") + b"\n" + line("b") + b"\n" + line("c")
    start = len(line("a")) + 1
    cut, values, _ = frame(data, start=start)
    assert cut == [line("a") + b"\n", line("b") + b"\n", line("c")]
    assert [v and v.type for v in values] == ["b", "c"]


ADVERSARIAL = """
import msgspec
from clew.conversation.source import Records, Stream
from clew.formats.jsonl import JsonLines
lines = [
    b'{"' * 2_500_000,
    b'{"a":"' + b'\\\\"' * 2_500_000,
    b'{"a":"' + b'\\\\"{' * 1_500_000,
    b'{"a":1} ' * 300_000 + b"x",
    b'{"a":[' + b'{"a":1},' * 300_000 + b"x",
    b"{" + b" " * 5_000_000,
    b"{ " * 2_500_000,
    b'{"a":' * 1_000_000,
    b"\\x00" * 5_000_000,
    b"[" * 5_000_000,
]
for line in lines:
    records = Records()
    list(JsonLines(records, Stream("s", line), msgspec.json.Decoder(dict), []))
    assert sum(len(records[i]) for i in range(len(records))) == len(line)
"""


def test_no_line_however_made_takes_more_than_linear_time() -> None:
    # The bound is no measure of speed: any of these lines took hours while the scan was quadratic.
    done = subprocess.run([sys.executable, "-c", ADVERSARIAL], timeout=120, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_bytes_that_are_no_utf8_are_told_also_where_nobody_decodes() -> None:
    good = line("a", "é 🚀")
    long = b'{"type":"b","payload":"' + b"\xc3\xa9" * (1 << 20) + b'","other":"\xff"}'
    data = b"\n".join((good, b'{"type":"a","payload":"\xff"}', b'{"type":"a","other":"\xc3"}', long, good))
    _, rows, damage = frame(data)
    assert [row and row.type for row in rows] == ["a", "a", "a", "b", "a"]
    assert [(d.sort, d.record, d.line) for d in damage] == [("bad utf-8", n, n + 1) for n in (1, 2, 3)]


def test_records_in_which_lone_surrogates_were_replaced_are_named() -> None:
    data = b'{"type":"a"}\n{"type":"b","payload":"\\ud83d"}\n{"type":"c","payload":"\\ud83d\\ude00"}\n'
    damage: list[Damage] = []
    lines = JsonLines(Records(), Stream("s.jsonl", data), msgspec.json.Decoder(Row), damage)
    assert [row and row.type for _, row in lines] == ["a", "b", "c"]
    assert lines.mended == [1]
    assert not damage


def test_what_the_fast_decoder_refuses_goes_to_the_slow_one() -> None:
    class Slow:
        def decode(self, data: bytes, /) -> Row:
            return Row("slow")

    data = b'{"type":"a"}\n{"type":5}\n'
    lines = JsonLines(Records(), Stream("s.jsonl", data), msgspec.json.Decoder(Row), [], slow=Slow())
    assert [row and row.type for _, row in lines] == ["a", "slow"]


def test_numbers_keep_their_spelling_where_only_the_lenient_parser_helps() -> None:
    class Row(msgspec.Struct):
        n: msgspec.Raw
        text: str = ""

    digits = "7" * 5000
    for spelling in (digits, "1e400", "0.1000", "-0", "9007199254740993", "1E+2"):
        line = f'{{"n":{{"deep":[{spelling}]}},"text":"lone \\ud83d"}}\n'.encode()
        records = Records()
        (value,) = [v for _, v in JsonLines(records, Stream("x", line), msgspec.json.Decoder(Row), [])]
        assert value is not None
        assert bytes(value.n) == f'{{"deep":[{spelling}]}}'.encode()
        assert value.text == "lone \ufffd"
