"""NumPy's files: one or several arrays, of numbers and of objects."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.scans.chance import Chance

__all__ = ["array", "arrays"]

_NUMBERS = ("'<f4'", "'|u1'", "'<i8'", "'|b1'", "'<U2'", "[('a', '<f4'), ('b', '|u1')]", "'|V3'", "'<M8[ns]'")
_OBJECTS = (
    "'|O'",
    "'O'",
    "[('a', '|O')]",
    "[('a', '|u1'), ('b', '|O')]",
    "'object'",
    "('|O')",
    "'|' 'O'",
    "'|\\x4f'",
)
_SIZES = {"'<f4'": 4, "'|u1'": 1, "'<i8'": 8, "'|b1'": 1, "'<U2'": 8, "'|V3'": 3, "'<M8[ns]'": 8}


def array(chance: Chance, content: Callable[[], bytes]) -> bytes:
    """Return one array; one of objects contains what `content` returns."""
    if chance.often(0.5):
        description, data = chance.choice(_OBJECTS), content()
        n_items = 1
        chance.note("array of objects")
    else:
        description = chance.choice(_NUMBERS)
        n_items = chance.choice((0, 1, 2, 8, 100))
        nbytes = n_items * _SIZES.get(description, 5)
        data = (chance.sled() * (nbytes + 1))[:nbytes]
    order = chance.choice(("False", "False", "True"))
    shape = chance.choice((f"({n_items},)", f"({n_items},)", f"({n_items}, 1)", f"(1, {n_items},)"))
    if n_items == 1:
        shape = chance.choice((shape, "()"))
    if chance.often(0.05):
        shape = chance.choice((f"({n_items}L,)", "(3,)", "(0,)", "(-1,)"))
        chance.note("odd shape")
    fields = [f"'descr': {description}", f"'fortran_order': {order}", f"'shape': {shape}"]
    if chance.often(0.05):
        chance.note("odd header")
        chance.shuffle(fields)
        fields.append(chance.choice((f"'descr': {chance.choice(_OBJECTS)}", "'more': 1", "")))
    header = "{" + ", ".join(fields) + chance.choice((", }", "}", ",}"))
    return _with_header(chance, header.encode()) + data


def _with_header(chance: Chance, header: bytes) -> bytes:
    version = chance.choice((1, 1, 1, 2, 3))
    if chance.often(0.02):
        version = chance.choice((0, 4))
    width = 2 if version == 1 else 4
    fill = -(8 + width + len(header) + 1) % 64
    header += b" " * chance.choice((fill, fill, 0, 1)) + chance.choice((b"\n", b"\n", b"", b" "))
    return b"\x93NUMPY" + bytes([version, 0]) + len(header).to_bytes(width, "little") + header


def arrays(chance: Chance, content: Callable[[], bytes]) -> bytes:
    """Return one or several arrays in a row, perhaps with something else after them."""
    n_arrays = chance.choice((1, 1, 2, 3))
    if n_arrays > 1:
        chance.note("several arrays")
    made = b"".join(array(chance, content) for _ in range(n_arrays))
    if chance.often(0.15):
        chance.note("something after arrays")
        made += chance.choice((b"\0", b"\n", chance.sled(), content()))
    return made
