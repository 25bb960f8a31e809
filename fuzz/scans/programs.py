"""Random pickles, opcode by opcode: every opcode, in every spelling that some reader accepts."""

from __future__ import annotations

import struct
from collections.abc import Callable

from fuzz.scans.chance import KNOWN, Chance

__all__ = ["Program", "odd_number"]

_INTEGERS = (0, 1, 2, 5, 127, 128, 255, 256, 65_535, 2**31 - 1, 2**31, 2**63)
_ODD = (
    b" %d",
    b"%d ",
    b"+%d",
    b"0%d",
    b"00%d",
    b"\t%d",
    b"%d_0",
    b"0x%x",
    b"0o%o",
    b"0b1",
    b"%d\0",
    b"\f%d\v",
    b"-%d",
)
_TEXTS = (b"a", b"storage", b"weight", b"cpu", b"ascii", b"latin1", b"\xc3\xa9", b"")


def odd_number(chance: Chance, number: int, *, often: float = 0.15) -> bytes:
    """Write a number as text, sometimes differently from Python."""
    if not chance.often(often):
        return b"%d" % number
    chance.note("odd number")
    style = chance.choice(_ODD)
    return style % number if b"%" in style else style


class Program:
    """One pickle being written.

    Attributes:
        parts: Its opcodes, each with its argument.
    """

    def __init__(self, chance: Chance, protocol: int, inner: Callable[[], bytes] | None = None) -> None:
        """Start with the mark of the protocol, usually.

        Args:
            chance: Where chance comes from.
            protocol: Opcodes of later protocols are rarely used.
            inner: Returns a file, to be hidden in a text.
        """
        self.parts: list[bytes] = []
        self._chance = chance
        self._protocol = protocol
        self._inner = inner
        self._memo: list[int] = []
        if protocol >= 2 and not chance.often(0.05):
            self.add(b"\x80" + bytes([protocol]))

    def add(self, *parts: bytes) -> None:
        """Append opcodes."""
        self.parts += parts

    def finish(self) -> list[bytes]:
        """Append STOP, usually, and return the opcodes."""
        if self._chance.often(0.05):
            self.add(b"N" * self._chance.randrange(3) + self._chance.choice((b"(", b"0", b"1", b"2", b"")))
        if not self._chance.often(0.03):
            self.add(b".")
        return self.parts

    def value(self, depth: int = 0) -> None:
        """Append opcodes that push a value."""
        kinds: tuple[Callable[[int], None], ...] = (self._leaf, self._leaf, self._leaf, self._array)
        if depth < 4:
            kinds += (self._container, self._container, self._call, self._named)
        self._chance.choice(kinds)(depth)
        roll = self._chance.random()
        if roll < 0.2:
            self._put()
        elif roll < 0.23 and self._memo:
            self._get(self._chance.choice(self._memo))
            self.add(b"0")
        elif roll < 0.25:
            self.add(self._chance.choice((b"2", b"N", b"(N")), self._chance.choice((b"0", b"1", b"0")))
        elif roll < 0.26:
            self.add(
                self._chance.choice((b"P1\n", b"Q", b"\x82\x01", b"\x83\x01\0", b"\x84\1\0\0\0", b"\x97", b"\x98"))
            )
        elif roll < 0.27:
            self.add(b"\x80" + bytes([self._chance.randrange(7)]))

    def arrays(self) -> None:
        """Append opcodes that push a dict of arrays, with something else now and then."""
        self.add(b"}", b"(")
        for number in range(self._chance.choice((1, 2, 3, 6))):
            self.add(self.sized(b"w%d" % number, "\x8c", 1))
            if self._chance.often(0.05):
                self.value(3)
            else:
                self._array(1)
        self.add(b"u")

    def _put(self) -> None:
        number = self._chance.choice((len(self._memo), len(self._memo), 7, 255, 256))
        styles = [b"p" + odd_number(self._chance, number) + b"\n", b"r" + struct.pack("<I", number)]
        styles += [b"q%c" % number] if number < 256 else []
        if number == len(self._memo) and self._protocol >= 4:
            styles.append(b"\x94")
        self._memo.append(number)
        self.add(self._chance.choice(styles))

    def _get(self, number: int) -> None:
        styles = [b"g" + odd_number(self._chance, number) + b"\n", b"j" + struct.pack("<I", number)]
        self.add(self._chance.choice([*styles, b"h%c" % number] if number < 256 else styles))

    def _leaf(self, _: int) -> None:
        self._chance.choice((self._plain, self._integer, self._text, self._text, self._bytes))()

    def _plain(self) -> None:
        number = odd_number(self._chance, self._chance.choice(_INTEGERS))
        self.add(
            self._chance.choice((
                *(b"N", b"\x88", b"\x89", b"I01\n", b"I00\n", b"F1.5\n", b"F" + number + b"\n"),
                *(b"Finf\n", b"F1e5\n", b"F1e999\n", b"F 1_0.5\n", b"G" + struct.pack(">d", 1.5)),
            ))
        )

    def _integer(self) -> None:
        number = self._chance.choice(_INTEGERS)
        text = odd_number(self._chance, number)
        raw = number.to_bytes(9, "little")
        self.add(
            self._chance.choice((
                *(b"K%c" % (number & 255), b"M" + raw[:2], b"J" + raw[:4], b"I" + text + b"\n"),
                *(b"L" + text + b"L\n", b"L" + text + b"\n", b"\x8a\x09" + raw, b"\x8b\x09\0\0\0" + raw, b"\x8a\0"),
            ))
        )

    def _content(self, *, is_line: bool = False, is_ascii: bool = False) -> bytes:
        """Return the characters of a text: plain ones, or opcodes that a reader may enter in the middle."""
        roll = self._chance.random()
        if roll < 0.35:
            return self._chance.choice(_TEXTS)
        if self._inner is not None and roll < 0.45 and not is_line and not is_ascii:
            self._chance.note("a file in a text")
            return self._inner()
        text = self._chance.sled(is_line=is_line, is_ascii=is_ascii)
        if roll > 0.985:
            self._chance.note("long text")
            text = b"N" * self._chance.choice((8_192, 66_000)) + text
        return text

    def _text(self) -> None:
        """Append a text; `str` of Python 2 too."""
        kind = self._chance.choice("XXX\x8c\x8c\x8dVSUT")
        if kind in "VS":
            text = self._content(is_line=True).replace(b"\n", b"")
            if kind == "V":
                self.add(b"V" + text + b"\n")
            else:
                quote = self._chance.choice((b"'", b'"'))
                text = text if self._chance.often(0.5) else b"".join(b"\\x%02x" % byte for byte in text)
                self.add(b"S" + self._chance.choice((b"", b"", b" ")) + quote + text + quote + b"\n")
            return
        text = self._content(is_ascii=kind in "X\x8c\x8d")
        self.add(self.sized(text, *{"X": ("X", 4), "\x8c": ("\x8c", 1), "\x8d": ("\x8d", 8)}.get(kind, (kind, 0))))

    def _bytes(self) -> None:
        kind, width = self._chance.choice((("B", 4), ("C", 1), ("\x8e", 8), ("\x96", 8)))
        self.add(self.sized(self._content(), kind, width))

    def _array(self, _: int) -> None:
        """Append an array as NumPy pickles it; its elements may be opcodes, and may be put and taken again."""
        content = self._content()
        core = self._chance.choice((b"numpy.core", b"numpy._core"))
        shape = b"J" + struct.pack("<i", len(content)) + b"\x85"
        if self._chance.often(0.3):
            self.name(core + b".numeric", b"_frombuffer")
            self.add(b"(", self.sized(content, *self._chance.choice((("\x96", 8), ("B", 4)))))
            self._dtype()
            self.add(shape, b"X\1\0\0\0C", b"t", b"R")
            return
        self.name(core + b".multiarray", b"_reconstruct")
        self.name(b"numpy", b"ndarray")
        self.add(b"K\0", b"\x85", b"C\1b", b"\x87", b"R", b"(", b"K\1", shape)
        self._dtype()
        self.add(b"\x89", self.sized(content, *self._chance.choice((("B", 4), ("\x8e", 8), ("\x96", 8), ("C", 1)))))
        if self._chance.often(0.3):
            self._put()
        self.add(b"t", b"b")
        if self._memo and self._chance.often(0.2):
            self._get(self._memo[-1])
            self.add(b"\x86")

    def _dtype(self) -> None:
        self.name(b"numpy", b"dtype")
        self.add(b"X\2\0\0\0u1", b"\x89", b"\x88", b"\x87", b"R")

    def sized(self, content: bytes, kind: str, width: int) -> bytes:
        """Return an opcode with its length and content, in the narrowest form that takes it."""
        wide = {"\x8c": ("X", 4), "C": ("B", 4), "U": ("T", 4), "T": ("T", 4)}
        if not width:
            width = 1 if kind == "U" else 4
        if width == 1 and len(content) > 255:
            kind, width = wide[kind]
        length = len(content) + (self._chance.choice((-1, 1, 2, 5)) if self._chance.often(0.01) else 0)
        return kind.encode("latin-1") + max(length, 0).to_bytes(width, "little") + content

    def _container(self, depth: int) -> None:
        n_items = self._chance.choice((0, 1, 1, 2, 3, 4))
        kind = self._chance.choice(("list", "list", "tuple", "dict", "dict", "set", "appended", "pairs"))
        if kind == "tuple" and n_items <= 3 and self._chance.often(0.7):
            self._items(n_items, depth)
            self.add((b")", b"\x85", b"\x86", b"\x87")[n_items])
        elif kind == "appended":
            self.add(b"]")
            for _ in range(n_items):
                self.value(depth + 1)
                self.add(b"a")
        elif kind == "pairs":
            self.add(b"}")
            for _ in range(n_items):
                self._key()
                self.value(depth + 1)
                self.add(b"s")
        else:
            self._marked(kind, n_items, depth)

    def _marked(self, kind: str, n_items: int, depth: int) -> None:
        styles = {"list": ((b"(", b"l"), (b"](", b"e")), "tuple": ((b"(", b"t"),)}
        styles |= {"dict": ((b"(", b"d"), (b"}(", b"u")), "set": ((b"\x8f(", b"\x90"), (b"(", b"\x91"))}
        begin, end = self._chance.choice(styles[kind])
        self.add(*(begin[place : place + 1] for place in range(len(begin))))
        if kind == "dict":
            for _ in range(n_items):
                self._key()
                self.value(depth + 1)
        elif kind == "set":
            for _ in range(n_items):
                self._key()
        else:
            self._items(n_items, depth)
        self.add(end)

    def _items(self, n_items: int, depth: int) -> None:
        for _ in range(n_items):
            self.value(depth + 1)

    def _key(self) -> None:
        self._chance.choice((self._integer, self._text))()

    def push_text(self, text: bytes) -> None:
        """Append a text in a form that fits it."""
        sized = [self.sized(text, *form) for form in (("X", 4), ("\x8c", 1), ("\x8d", 8))]
        styles = [*sized, *sized, b"V" + text + b"\n", b"V" + b"".join(b"\\u%04x" % byte for byte in text) + b"\n"]
        styles += [b"U%c%b" % (len(text), text), b"S'%b'\n" % text, b'S"%b"\n' % text]
        self.add(self._chance.choice(styles))
        if self._chance.often(0.2):
            self._put()
            if self._chance.often(0.5):
                self.add(b"0")
                self._get(self._memo[-1])

    def name(self, module: bytes, name: bytes) -> None:
        """Append opcodes that push what a name means."""
        if self._chance.often(0.5 if self._protocol < 4 else 0.15):
            self.add(b"c%b\n%b\n" % (module, name))
        else:
            self.push_text(module)
            self.push_text(name)
            self.add(b"\x93")

    def _named(self, _: int) -> None:
        """Append a name, and perhaps do nothing with it."""
        self.name(*self._any_name()[:2])

    def _any_name(self) -> tuple[bytes, bytes, int]:
        if self._chance.has_payload and self._chance.often(0.1):
            return (*self._chance.payload(), 0)
        return self._chance.choice(KNOWN)

    def _call(self, depth: int) -> None:
        module, name, n_usual = self._any_name()
        n_arguments = n_usual if self._chance.often(0.8) else self._chance.randrange(3)
        style = self._chance.choice((b"R", b"R", b"R", b"\x81", b"\x92", b"i", b"o"))
        if style in {b"i", b"o"}:
            self.add(b"(")
        if style != b"i":
            self.name(module, name)
        if style in {b"i", b"o"}:
            self._arguments(name, n_arguments, depth)
            self.add(b"i%b\n%b\n" % (module, name) if style == b"i" else b"o")
        else:
            self.add(b"(")
            self._arguments(name, n_arguments, depth)
            self.add(b"t")
            self.add(*((b"}", style) if style == b"\x92" else (style,)))
        if self._chance.often(0.15):
            self.value(depth + 1)
            self.add(b"b")

    def _arguments(self, name: bytes, n_arguments: int, depth: int) -> None:
        if name == b"encode" and self._chance.often(0.8):
            self.push_text(b"abc")
            self.push_text(self._chance.choice((b"latin1", b"latin1", b"utf-8", b"rot13", b"recorder", b"zlib")))
        elif name == b"_rebuild_from_type_v2" and self._chance.often(0.7):
            self.name(*self._any_name()[:2])
            self.name(*self._any_name()[:2])
            self.add(b")", b"}")
        elif name == b"_load_from_bytes" and self._inner is not None and self._chance.often(0.8):
            self.add(self.sized(self._inner(), "B", 4))
        elif name == b"_reconstructor" and self._chance.often(0.8):
            self.name(*self._any_name()[:2])
            self.name(b"builtins", b"object")
            self.add(b"N")
        elif name == b"defaultdict" and self._chance.often(0.7):
            self.name(*self._any_name()[:2])
        else:
            self._items(n_arguments, depth)
