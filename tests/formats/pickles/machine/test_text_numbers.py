"""Numbers written as text: what Python's two readers agree on is read, the rest is refused."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest

from tensorkeep.errors import PickleError
from tensorkeep.formats.pickles.machine._context import Context
from tensorkeep.formats.pickles.machine._loop import run_pickle
from tensorkeep.formats.pickles.machine._stack import BrokenPickleError

WHOLE = (
    *("0", "1", "00", "01", "000", "001", "010", "09", "-1", "-0", "+0", "+1", "+12", "- 1", "--1", "-", "+"),
    *("0x10", "0X1f", "0xg", "0x", "0x_1", "0b1", "0b2", "0o17", "1_000", "1_", "_1", "1__0", "0_0", "0_1"),
    *(" 1", "1 ", " 12 ", "\t1", "\x0b12", "\x0c12", "\r12", "12\r", "\x1c12", "\xa012", "\x8512", ""),
    *("\0", "\0\0", " \0", "1\0", "12\0", "12\0more", "12\0\n"[:3], "5L", "L", "LL", "0L", "5\0L", "5LL"),
    *("9223372036854775808", "-9223372036854775809", "0777777777777777777777777", "9" * 2_000, "\u0661"),
)
REAL = (
    *("1.5", "-1.5", "+.5", "1.", ".", "1e5", "1E-5", "1e", "1e400", "-1e400", "1e-400", "1,5", "1.5f", "0x1p3"),
    *(" 1.5", "1.5 ", "1_0.5", "1.5\0", "1.5\0more", "inf", "-Infinity", "INF", "nan", "+nan", "nan(1)", "1d5"),
)
OPCODES = {
    "INT": ("I{}\n.", (*WHOLE, *REAL)),
    "LONG": ("L{}\n.", (*WHOLE, *REAL)),
    "FLOAT": ("F{}\n.", (*WHOLE, *REAL)),
    "GET": ("K\x07p12\n0K\x08p1\n0K\x09p0\n0K\x0ap5\n0g{}\n.", WHOLE),
    "PUT": ("K\x07p{}\n0h\x0c.", [text for text in WHOLE if len(text) < 10]),
}


def read(load: Any, data: bytes) -> tuple[str, Any] | None:
    try:
        value = load(data)
    except Exception:
        return None
    return type(value).__name__, str(value)


@pytest.mark.parametrize("opcode", OPCODES)
def test_numbers_are_read_as_both_readers_do_or_refused(opcode: str) -> None:
    form, texts = OPCODES[opcode]
    n_same = 0
    for text in texts:
        data = form.format(text).encode("utf-8" if text > "\xff" else "latin-1")
        in_c = read(pickle.loads, data)
        in_python = read(lambda data: pickle._Unpickler(io.BytesIO(data)).load(), data)  # type: ignore[attr-defined]
        is_broken = False
        ours = None
        try:
            value = run_pickle(data, 0, Context())[0]
            ours = type(value).__name__, str(value)
            n_same += 1
        except PickleError as error:
            is_broken = isinstance(error, BrokenPickleError)
        assert ours is None or ours == in_c == in_python, text
        assert not is_broken or in_c is None is in_python, text
        assert ours or in_c is None or in_c != in_python, text
    assert n_same > 3


@pytest.mark.parametrize("text", ["'a' ", " 'a'", "'a'\r", "a", "'", "'a\""])
def test_a_text_has_nothing_around_its_quotes(text: str) -> None:
    data = b"S" + text.encode() + b"\n."
    assert read(pickle.loads, data) is None

    with pytest.raises(BrokenPickleError, match="not in quotes"):
        run_pickle(data, 0, Context())
