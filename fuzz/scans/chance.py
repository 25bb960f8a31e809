"""Where chance comes from, what payloads are called, and notes on what was chosen."""

from __future__ import annotations

from random import Random

__all__ = ["KNOWN", "PAYLOADS", "Chance"]

PAYLOADS = (
    *((b"recorder", b"mark"),) * 8,
    (b"recorder", b"Class.mark"),
    (b"os", b"getcwd"),
    (b"antigravity", b"geohash"),
    (b"collections", b"UserString"),
    (b"builtins", b"eval"),
    (b"__builtin__", b"execfile"),
)
"""Names outside the closed table. The first does not exist and is on no list: the guard stops it before an import."""

KNOWN = (
    (b"collections", b"OrderedDict", 0),
    (b"builtins", b"set", 0),
    (b"__builtin__", b"set", 0),
    (b"__builtin__", b"xrange", 2),
    (b"_codecs", b"encode", 2),
    (b"collections", b"deque", 0),
    (b"collections", b"Counter", 0),
    (b"collections", b"defaultdict", 0),
    (b"datetime", b"timedelta", 3),
    (b"copy_reg", b"_reconstructor", 3),
    (b"copyreg", b"_reconstructor", 3),
    (b"builtins", b"complex", 2),
    (b"builtins", b"bytearray", 0),
    (b"argparse", b"Namespace", 0),
    (b"pathlib", b"PurePosixPath", 1),
    (b"decimal", b"Decimal", 1),
    (b"torch", b"FloatStorage", 0),
    (b"torch", b"Size", 1),
    (b"torch", b"device", 1),
    (b"torch._utils", b"_rebuild_tensor_v2", 6),
    (b"torch._utils", b"_rebuild_parameter", 3),
    (b"torch._tensor", b"_rebuild_from_type_v2", 4),
    (b"torch.storage", b"_load_from_bytes", 1),
    (b"numpy", b"dtype", 3),
    (b"numpy", b"ndarray", 1),
    (b"numpy.core.multiarray", b"_reconstruct", 3),
    (b"numpy._core.multiarray", b"scalar", 2),
)
"""Names of the closed table, and how many arguments a call usually has."""


class Chance(Random):  # noqa: S311 - equal seeds must give equal files
    """A generator of random choices for one file, which notes what they were.

    Attributes:
        notes: What is unusual about the file.
        has_payload: Whether names outside the table are written.
    """

    def __init__(self, seed: str) -> None:
        """Equal seeds give equal choices."""
        super().__init__(seed)
        self.notes: set[str] = set()
        self.has_payload = self.often(0.7)

    def often(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random() < probability

    def note(self, text: str) -> None:
        """Remember what was chosen."""
        self.notes.add(text)

    def payload(self) -> tuple[bytes, bytes]:
        """Return a name that no reader may resolve, or a harmless one."""
        if self.has_payload:
            return self.choice(PAYLOADS)
        return self.choice(KNOWN)[:2]

    def call(self, *, is_line: bool = False, is_ascii: bool = False) -> bytes:
        """Return opcodes that call a payload; without line ends, or in ASCII, if asked for."""
        module, name = self.payload()
        styles = [b"\x8c%c%b\x8c%c%b\x93)R" % (len(module), module, len(name), name)] if not is_ascii else []
        if not is_line:
            styles += [b"c%b\n%b\n)R" % (module, name), b"(i%b\n%b\n" % (module, name)]
        return self.choice(styles or [b"N"])

    def sled(self, *, is_line: bool = False, is_ascii: bool = False) -> bytes:
        """Return bytes that are the rest of a pickle with a payload, wherever a reader enters them."""
        nbytes = self.choice((0, 1, 3, 8, 20, 60))
        ends = (b".", b".", b".", b"0N.", b"")
        return (
            self.choice((b"N", b"N", b"(", b")")) * nbytes
            + self.call(is_line=is_line, is_ascii=is_ascii)
            + self.choice(ends)
        )
