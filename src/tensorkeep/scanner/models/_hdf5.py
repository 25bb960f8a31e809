"""HDF5 files: the HDF5 library runs nothing in them, but may read other files that they name, and load plugins.

Keras builds models from attributes. PyTables, which pandas uses, unpickles every text in an attribute that ends with
a dot, and the elements of datasets that are marked so.
"""

from __future__ import annotations

from typing import Any, Final

from tensorkeep.formats.hdf5 import MAGIC, ROOT, SUFFIXES, Hdf5File, UnknownObject, is_hdf5
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner._scan_pickles import scan_pickles
from tensorkeep.scanner.models._base import ModelForm
from tensorkeep.scanner.models._keras import scan_configuration
from tensorkeep.transport import ByteRange, MemorySource, is_remote

_NAME: Final = "HDF5 file"
_PSEUDO_ATOM, _OBJECTS = "PSEUDOATOM", b"object"
"""The attribute by which PyTables marks a dataset of pickles, and its value."""

_FIRST_START: Final = 512
_KERAS_MODEL: Final = ("model_config", "training_config")
"""Attributes from which Keras builds a model; in such files it runs Lambda layers even in safe mode."""


def _is_hdf5(content: Content) -> bool:
    """Say whether HDF5 may begin in the first bytes; of files here and of those named so, anywhere."""
    head = content.head()
    starts = [0]
    while starts[-1] < len(head):
        starts.append(2 * starts[-1] or _FIRST_START)
    if any(head.startswith(MAGIC, start) for start in starts):
        return True
    if content.nbytes <= len(head):
        return False
    is_cheap = not is_remote(content.source.name)  # on a server, each place to look at is a request
    return (is_cheap or content.name.lower().endswith(SUFFIXES)) and is_hdf5(content.alone())


def _scan(content: Content, log: FindingLog) -> bool:
    """Report what the HDF5 library, Keras and PyTables would do for a file beyond reading it."""
    log.name_form(_NAME, content)
    file = Hdf5File(content.alone())
    for name, unknown in file.contents().unknowns.items():
        if isinstance(unknown, UnknownObject) and unknown.deed:
            log.add("suspicious", f"{name} is {unknown}: {unknown.deed}", content)
    attributes = file.raw_attributes()
    for name in _KERAS_MODEL:
        if name in attributes.get(ROOT, {}):
            _scan_model(name, attributes[ROOT][name], content, log)
    for path, named in attributes.items():
        for name, value in named.items():
            _scan_for_pickles(path, name, value, content, log)
    return True


def _scan_model(name: str, value: Any, content: Content, log: FindingLog) -> None:
    """Report what Keras would run for the configuration in an attribute, which may be followed by zeros."""
    if not isinstance(value, bytes):
        log.add("unreadable", f"the attribute {name}, from which Keras builds a model, is not a text", content)
        return
    for text in dict.fromkeys((value.rstrip(b"\0"), value.partition(b"\0")[0])):
        scan_configuration(text, content, log)


def _scan_for_pickles(path: str, name: str, value: Any, content: Content, log: FindingLog) -> None:
    """Report what PyTables, and with it pandas, would unpickle."""
    if isinstance(value, tuple):
        for item in value:
            _scan_for_pickles(path, name, item, content, log)
    if not isinstance(value, bytes):
        return
    if name == _PSEUDO_ATOM and value.rstrip(b"\0") == _OBJECTS:
        log.add("unknown", f"PyTables unpickles the elements of {path}", content)
    for text in dict.fromkeys((value.rstrip(b"\0"), value.partition(b"\0")[0])):
        if text.endswith(b"."):
            place = (*content.place, f"{path}@{name}")
            scan_pickles(Content(MemorySource(text), ByteRange(0, len(text)), place, is_copy=True), log)


HDF5_FILE: Final = ModelForm(_NAME, _is_hdf5, _scan)
