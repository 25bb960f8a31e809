"""Headers made to cost much, and what they cost: `python -m fuzz.hostile_headers --megabytes 100`.

Each is read in a separate process, by tensorkeep and by the reference, with limits on time and memory.
"""

# ruff: noqa: S603, T201 - it starts only this interpreter; this is a program that prints

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["SHAPES", "Cost", "cost_of"]

_ENTRY = '"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
_EMPTY = _ENTRY.format("a")


def _filled(head: str, unit: str, tail: str, nbytes: int) -> bytes:
    """Repeat a unit to about `nbytes` bytes, with its number if it has a placeholder."""
    if "%" not in unit:
        return (head + unit * ((nbytes - len(head) - len(tail)) // len(unit)) + tail).encode()
    width = len(unit % 0) + len(str(nbytes)) - 2
    return (head + "".join(unit % number for number in range(nbytes // width)) + tail).encode()


def _with_field(value: str) -> tuple[str, str]:
    """Return the text before and after an unused field in an otherwise valid entry."""
    head, tail = value.split("…")
    return '{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":' + head, tail + "}}"


SHAPES: dict[str, Callable[[int], bytes]] = {
    "valid tensors": lambda n: _filled("{", _ENTRY.format("t%d") + ",", _EMPTY + "}", n),
    "valid, a colon in a name": lambda n: _filled("{", _ENTRY.format("t%d") + ",", _ENTRY.format("a:b") + "}", n),
    "valid, colons in all names": lambda n: _filled("{", _ENTRY.format("t:%d") + ",", _ENTRY.format("a:b") + "}", n),
    "valid, metadata last": lambda n: _filled("{", _ENTRY.format("t%d") + ",", '"__metadata__":{}}', n),
    "valid, an emoji and a colon": lambda n: _filled(
        "{", _ENTRY.format("t%d") + ",", _ENTRY.format("\U0001f600:") + "}", n
    ),
    "valid, the last repeated": lambda n: _filled("{", _ENTRY.format("t%d") + ",", _EMPTY + "," + _EMPTY + "}", n),
    "valid, reversed": lambda n: _entries_reversed(n),  # noqa: PLW0108 - defined below
    "valid, one emoji": lambda n: _filled("{", _ENTRY.format("t%d") + ",", _ENTRY.format("\U0001f600") + "}", n),
    "unknown dtypes": lambda n: _filled("{", _ENTRY.replace("U8", "Q").format("t%d") + ",", _EMPTY + "}", n),
    "one tensor repeated": lambda n: _filled("{", _EMPTY + ",", _EMPTY + "}", n),
    "empty objects": lambda n: _filled("{", '"%d":{},', _EMPTY + "}", n),
    "empty objects, unread": lambda n: _filled(_with_field("[…]")[0], "{},", "{}" + _with_field("[…]")[1], n),
    "empty keys, unread": lambda n: _filled(_with_field("{…}")[0], '"":0,', '"":0' + _with_field("{…}")[1], n),
    "deep lists": lambda n: b'{"a":' + b"[" * (n // 2 - 8) + b"]" * (n // 2 - 8) + b"}",
    "deep lists, unread": lambda n: _filled(_with_field("…")[0], "[", "", n),
    "deep objects in metadata": lambda n: _filled('{"__metadata__":', '{"a":', "", n),
    "colons": lambda n: _filled('{"a":{"dtype":"', ":", '","shape":[],"data_offsets":[0,0]}}', n),
    "one long name": lambda n: _filled('{"', "a", '":{"dtype":"U8","shape":[1],"data_offsets":[0,0]}}', n),
    "one long unknown dtype": lambda n: _filled('{"a":{"dtype":"', "a", '","shape":[],"data_offsets":[0,1]}}', n),
    "backslashes": lambda n: _filled('{"', "\\\\", '":0}', n),
    "quotes": lambda n: b'"' * n,
    "metadata again and again": lambda n: _filled("{", '"__metadata__":{},', '"__metadata__":{}}', n),
    "metadata in metadata": lambda n: _filled('{"__metadata__":{"a":"', '\\"__metadata__\\":', '"}}', n),
    "metadata of many keys": lambda n: _filled('{"__metadata__":{', '"%d":"",', '"x":""}}', n),
    "metadata of lists": lambda n: _filled('{"__metadata__":[', "[],", "[]]}", n),
    "metadata of numbers": lambda n: _filled('{"__metadata__":[', "1e5,", "1]}", n),
    "metadata, then spaces": lambda n: _filled('{"__metadata__"', " ", "}", n),
    "a long number": lambda n: _filled('{"a":{"dtype":"U8","shape":[', "9", '],"data_offsets":[0,0]}}', n),
    "a long number, unread": lambda n: _filled(_with_field("…")[0], "9", _with_field("…")[1], n),
    "a long fraction, unread": lambda n: _filled(_with_field("0.…")[0], "9", _with_field("0.…")[1], n),
    "a long number in metadata": lambda n: _filled('{"__metadata__":[', "9", "]}", n),
    "long numbers": lambda n: _filled(
        '{"a":{"dtype":"U8","shape":[', "9" * 4299 + ",", '9],"data_offsets":[0,0]}}', n
    ),
    "many ones in a shape": lambda n: _filled('{"a":{"dtype":"U8","shape":[', "1,", '1],"data_offsets":[0,0]}}', n),
    "many zeros in a shape": lambda n: _filled('{"a":{"dtype":"U8","shape":[', "0,", '1],"data_offsets":[0,0]}}', n),
    "large extents in a shape": lambda n: _filled(
        '{"a":{"dtype":"U8","shape":[', "9223372036854775807,", '1],"data_offsets":[0,0]}}', n
    ),
    "negative extents": lambda n: _filled('{"a":{"dtype":"U8","shape":[', "-1,", '-1],"data_offsets":[0,1]}}', n),
    "many offsets": lambda n: _filled('{"a":{"dtype":"U8","shape":[],"data_offsets":[', "0,", "0]}}", n),
    "spaces after a member": lambda n: _filled("{" + _ENTRY.format("a:b"), " ", "}", n),
    "spaces": lambda n: b"{" + b" " * (n - 2) + b"}",
    "invalid UTF-8": lambda n: b"{" + b"\xff" * (n - 1),
    "zeros": bytes,
}
"""Name to a function that makes the header from its size in bytes."""


def _entries_reversed(nbytes: int) -> bytes:
    """Make one-byte tensors with descending offsets."""
    count = nbytes // (len('"t1000000":{"dtype":"U8","shape":[0],"data_offsets":[1000000,1000000]},'))
    entry = '"t%d":{"dtype":"U8","shape":[0],"data_offsets":[%d,%d]}'
    return ("{" + ",".join(entry % (place, place, place + 1) for place in range(count, 0, -1)) + "}").encode()


class Cost(NamedTuple):
    """The cost of reading a header.

    Attributes:
        seconds: Time of the read alone.
        peak_nbytes: Memory beyond what the process had before.
        outcome: The outcome, in a few words.
    """

    seconds: float
    peak_nbytes: int
    outcome: str


_READ = """
import resource, sys, time
path, reader = sys.argv[1:3]
if reader == "tensorkeep":
    from tensorkeep.errors import TensorkeepError as Refused
    from tensorkeep.collector import PausedCollector
    from tensorkeep.formats.safetensors import read_header
    from tensorkeep.transport import open_source
    def read():  # as tensorkeep.open does, without NumPy
        with PausedCollector():
            return f"{len(read_header(open_source(path)).entries):,} tensors"
else:
    from safetensors import SafetensorError as Refused, safe_open
    def read():
        return f"{len(safe_open(path, 'np').keys()):,} tensors"
def peak_kib():  # of this process only: what getrusage gives was inherited through fork
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:"))
before = peak_kib()
resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30, 16 * 2**30))
begin = time.perf_counter()
try:
    outcome = read()
except Refused as error:
    outcome = "refused: " + str(error)
except BaseException as error:
    outcome = "FOREIGN " + type(error).__name__ + ": " + str(error)
seconds = time.perf_counter() - begin
print(seconds, (peak_kib() - before) * 1024, len(outcome), outcome[:200].replace(path, "").replace("\\n", " "))
"""


def cost_of(header: bytes, *, reader: str = "tensorkeep", timeout_s: float = 60) -> Cost:
    """Read a header in a separate process.

    Args:
        header: The header's bytes.
        reader: `"tensorkeep"` or `"reference"`.
        timeout_s: Seconds until the process is killed.

    Returns:
        The cost.
    """
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.flush()
        command = [sys.executable, "-c", _READ, file.name, reader]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_s, check=False, env={**os.environ}
            )
        except subprocess.TimeoutExpired:
            return Cost(timeout_s, 0, "FOREIGN: no end in sight")
    if done.returncode:
        return Cost(0, 0, f"FOREIGN: exit status {done.returncode}: {done.stderr[-200:]}")
    seconds, peak, length, outcome = done.stdout.rstrip("\n").split(" ", 3)
    if int(length) > 100_000:
        outcome = f"MESSAGE of {int(length):,} characters: {outcome}"
    return Cost(float(seconds), int(peak), outcome)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=10, help="size of each header (default: %(default)s)")
    parser.add_argument("--only", default="", help="shapes whose name has this text")
    arguments = parser.parse_args()
    print(f"{'shape':<28}{'seconds':>9}{'peak MB':>9}   {'reference':>9}{'peak MB':>9}  outcome")
    for name, make in SHAPES.items():
        if arguments.only not in name:
            continue
        header = make(arguments.megabytes * 1_000_000)
        ours, theirs = cost_of(header), cost_of(header, reader="reference")
        figures = f"{ours.seconds:>9.2f}{ours.peak_nbytes / 1e6:>9.0f}"
        figures += f"   {theirs.seconds:>9.2f}{theirs.peak_nbytes / 1e6:>9.0f}"
        print(f"{name:<28}{figures}  {ours.outcome[:90]}", flush=True)


if __name__ == "__main__":
    main()
