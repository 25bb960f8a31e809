"""TensorFlow's programs, whose operators may read and write files and run Python, and its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tensorkeep.errors import FormatError
from tensorkeep.formats.protobuf import LENGTH, VARINT, MessageReader
from tensorkeep.formats.tensorflow import is_data_name, is_table, read_bundle
from tensorkeep.formats.tensorflow.programs import COMPUTING, Program, ProgramReader, deeds_of
from tensorkeep.scanner._compression import report_compression
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._base import ModelForm
from tensorkeep.scanner.models._keras import scan_configuration
from tensorkeep.transport import ByteSource, split

_SAVED_MODEL_START: Final = b"\x08\x01\x12"
"""The version of a SavedModel, 1, and the tag of its first program."""

_TABLE_START: Final = b"\0\0"
_SAVED_MODEL: Final = "saved_model.pb"
_KERAS_METADATA: Final = "keras_metadata.pb"
_FINGERPRINT: Final = "fingerprint.pb"
_UNREAD: Final = {
    ".pbtxt": "a program of TensorFlow as text, which is not looked into",
    ".cpb": "a program of TensorFlow in chunks, which are not looked into",
}
_MAX_NBYTES: Final = 64 * 2**20
_TOP: Final = {
    "SavedModel": {1: VARINT, 2: LENGTH},
    "GraphDef": {1: LENGTH, 2: LENGTH, 3: VARINT, 4: LENGTH, 5: LENGTH},
    "MetaGraphDef": dict.fromkeys(range(1, 8), LENGTH),
}
"""Fields of each form of a program, and how they are written."""

_HASHES: Final = dict.fromkeys(range(1, 6), VARINT) | {6: LENGTH, 7: LENGTH}
"""The same of a fingerprint: hashes of the files beside it, a version and an identifier."""

_MAX_FINGERPRINT_NBYTES: Final = 4096


def _is_checkpoint(content: Content) -> bool:
    if is_data_name(content.name):
        return True
    return content.head().startswith(_TABLE_START) and is_table(content.alone())


def _scan_checkpoint(content: Content, log: FindingLog) -> bool:
    """Report objects that TensorFlow restores by their own classes; tensors and strings are data."""
    if is_data_name(content.name):  # only the name says so, and joblib unpacks whatever is compressed
        report_compression(content, log)
        return True
    for key, tensor in read_bundle(content.alone()).tensors.items():
        if not tensor.dtype.itemsize and not tensor.is_string:
            log.add("unknown", f"{key} is a {tensor.dtype.name}, which TensorFlow restores by a class of it", content)
    return True


def _is_fingerprint(content: Content) -> bool:
    is_named = split(content.name)[1].lower() == _FINGERPRINT
    if not is_named or content.nbytes > _MAX_FINGERPRINT_NBYTES:
        return False
    try:
        fields = [(field.number, field.wire_type) for field in MessageReader(content.alone()).fields()]
    except FormatError:
        return False
    return bool(fields) and all(_HASHES.get(number) == wire_type for number, wire_type in fields)


def _is_program(content: Content) -> bool:
    if _is_fingerprint(content):
        return False
    name = content.name.lower()
    return name.endswith((".pb", ".meta", *_UNREAD)) or content.head().startswith(_SAVED_MODEL_START)


def _scan_program(content: Content, log: FindingLog) -> bool:
    """Report operators that do more than compute, and the code of Keras layers."""
    name = split(content.name)[1].lower()
    for suffix, what in _UNREAD.items():
        if name.endswith(suffix):
            log.add("unknown", what, content)
            return True
    if name == _KERAS_METADATA:
        return _scan_keras_metadata(content, log)
    programs, is_certain = _programs(content.alone(), name)
    n_before = len(log.findings)
    for program in programs:
        for deed in deeds_of(program):
            log.add(deed.severity, deed.message, content, deed.position)
        for text in program.saved.metadata:
            scan_configuration(text, content, log)
    return is_certain or len(log.findings) > n_before


def _programs(source: ByteSource, name: str) -> tuple[list[Program], bool]:
    """Read the programs of a file as TensorFlow would, and say whether it can be nothing else.

    Like every reader of Protocol Buffers, TensorFlow passes over fields that it does not know. So a file with such
    fields is read too; what is found in it matters only if it does more than compute.
    """
    reader = ProgramReader(source, COMPUTING)
    if name == _SAVED_MODEL:
        return reader.saved_model(), True
    read: dict[str, Callable[[], list[Program]]] = {
        "SavedModel": reader.saved_model,
        "GraphDef": reader.graph,
        "MetaGraphDef": reader.meta_graph,
    }
    is_meta = name.endswith(".meta")
    possible = ["MetaGraphDef"] if is_meta else [form for form in read if _has_form(form, source)]
    is_certain = bool(possible) and _has_form(possible[0], source)
    found: list[Program] = []
    for form in possible or read:
        try:
            programs = read[form]()
        except FormatError:
            if is_certain and form == possible[-1]:
                raise
        else:
            if is_certain:
                return programs, True
            found += programs
    return found, False


def _has_form(form: str, source: ByteSource) -> bool:
    """Say whether a form has all fields of a message."""
    known = _TOP[form]
    try:
        numbers = {field.number for field in MessageReader(source).fields() if known[field.number] == field.wire_type}
    except (FormatError, KeyError):
        return False
    return bool(numbers)


def _scan_keras_metadata(content: Content, log: FindingLog) -> bool:
    """Report code in the configurations of layers, which are in a file beside the program."""
    reader = MessageReader(content.alone())
    for node in reader.fields():
        for part in reader.fields(node.span) if node.number == 1 else ():
            if part.number == 5:
                scan_configuration(reader.read(part.span, max_nbytes=_MAX_NBYTES), content, log)
    return True


TENSORFLOW_CHECKPOINT: Final = ModelForm("TensorFlow checkpoint", _is_checkpoint, _scan_checkpoint)
TENSORFLOW_FINGERPRINT: Final = ModelForm("TensorFlow fingerprint", _is_fingerprint, lambda _, __: True)
TENSORFLOW_PROGRAM: Final = ModelForm("TensorFlow program", _is_program, _scan_program)
