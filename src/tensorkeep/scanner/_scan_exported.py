"""Programs of torch.export and packages of AOTInductor: what torch runs, evaluates, imports or unpickles to load one.

`torch.export.load` makes Python code of the graph, evaluates sizes, calls operators by their dotted names, unpickles
example inputs, and objects and weights that are marked as pickles. A package of AOTInductor is native code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from tensorkeep.formats.archives import Archive
from tensorkeep.formats.pt2 import LEGACY_GRAPH, MARK, PICKLED_OBJECTS, code_in_graph, pickled_members
from tensorkeep.limits import MAX_INDEX_NBYTES
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner._scan_pickles import scan_pickles

_COMPILED: Final = "data/aotinductor/"
_UNREAD: Final = ("data/executorch/", "data/mtia", "xl_model_weights/")
_GRAPHS: Final = "models/"
_CONFIGS: Final = ("_weights_config.json", "_constants_config.json")
_ZIP: Final = b"PK\x03\x04"
_MAX_FAULTS: Final = 20


def is_exported(archive: Archive) -> bool:
    """Say whether torch.export takes an archive for a program; it ignores case in names."""
    return any(name.casefold() in {MARK, LEGACY_GRAPH} for name in archive.members)


def scan_exported(members: list[Content], log: FindingLog) -> None:
    """Report what loading the program does beyond reading tensors; each member is scanned by itself as well."""
    named = [(member.place[-1].casefold(), member) for member in members]
    compiled = [member for path, member in named if path.startswith(_COMPILED) and not path.endswith("_config.json")]
    if compiled:
        log.add("suspicious", "torch loads and runs the compiled code of the package", compiled[0])
    for path, member in named:
        with log.recording_errors(member):
            if path.startswith(_UNREAD):
                log.add("unknown", "it is not known to be data", member)
            elif path.startswith(_GRAPHS) or path == LEGACY_GRAPH:
                _scan_graph(member, log)
            elif path.startswith(PICKLED_OBJECTS):
                log.add("unknown", "torch.export unpickles an object", member)
    pickled = set(_pickled(named, log))
    for path, member in named:
        if (path in pickled or path.endswith(".pt")) and not member.head().startswith(_ZIP):
            with log.recording_errors(member):
                scan_pickles(member, log, is_certain=True)


def _scan_graph(member: Content, log: FindingLog) -> None:
    if member.nbytes > MAX_INDEX_NBYTES:
        log.add("unreadable", "the graph of the program is too long to scan", member)
        return
    for text in islice(code_in_graph(member.read(member.nbytes)), _MAX_FAULTS):
        log.add("suspicious", text, member)


def _pickled(named: Iterable[tuple[str, Content]], log: FindingLog) -> Iterator[str]:
    """Yield the paths of members that torch.export unpickles because a list of weights says so."""
    for path, member in named:
        if path.endswith(_CONFIGS) and member.nbytes <= MAX_INDEX_NBYTES:
            with log.recording_errors(member):
                folder, slash, _ = path.rpartition("/")
                for name in pickled_members(member.read(member.nbytes), path):
                    yield f"{folder}{slash}{name}".casefold()
        elif path.startswith(PICKLED_OBJECTS):
            yield path
