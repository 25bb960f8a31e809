"""HDF5 files: the HDF5 library runs nothing in them, but may read other files that they name, and load plugins."""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.hdf5 import MAGIC, SUFFIXES, Hdf5File, UnknownObject, is_hdf5
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._base import ModelForm
from tensorkeep.scanner.models._keras import scan_configuration

_NAME: Final = "HDF5 file"
_FIRST_START: Final = 512
_KERAS_MODEL: Final = ("model_config", "training_config")
"""Attributes from which Keras builds a model; in such files it runs Lambda layers even in safe mode."""


def _is_hdf5(content: Content) -> bool:
    """Say whether HDF5 may begin at a place that the first bytes show; of files named so, anywhere."""
    head = content.head()
    starts = [0]
    while starts[-1] < len(head):
        starts.append(2 * starts[-1] or _FIRST_START)
    if any(head.startswith(MAGIC, start) for start in starts):
        return True
    return content.name.lower().endswith(SUFFIXES) and is_hdf5(content.alone())


def _scan(content: Content, log: FindingLog) -> bool:
    """Report what the HDF5 library would do for a file beyond reading it."""
    log.name_form(_NAME, content)
    file = Hdf5File(content.alone())
    for name, unknown in file.contents().unknowns.items():
        if isinstance(unknown, UnknownObject) and unknown.deed:
            log.add("suspicious", f"{name} is {unknown}: {unknown.deed}", content)
    root = file.root_attributes()
    for name in _KERAS_MODEL:
        if isinstance(root.get(name), str):
            scan_configuration(root[name], content, log)
        elif name in root:
            log.add("unreadable", f"the attribute {name}, from which Keras builds a model, is not a text", content)
    return True


HDF5_FILE: Final = ModelForm(_NAME, _is_hdf5, _scan)
