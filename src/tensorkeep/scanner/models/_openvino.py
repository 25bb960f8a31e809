"""OpenVINO's models and their weights: graphs of operators run no code of the file, but may need a library."""

from __future__ import annotations

import os
import re
from typing import Final

from tensorkeep.formats import SNIFF_NBYTES
from tensorkeep.formats.openvino import begins_like_openvino, parse_openvino
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._base import ModelForm
from tensorkeep.texts import listed
from tensorkeep.transport import is_remote

_WEIGHTS, _MODEL = ".bin", ".xml"
_MAX_NAME_LENGTH: Final = 200
_is_known = re.compile(r"opset\d{1,3}").fullmatch


def _is_model(content: Content) -> bool:
    return begins_like_openvino(content.read(min(content.nbytes, SNIFF_NBYTES)))


def _scan_model(content: Content, log: FindingLog) -> bool:
    """Report operators of sets that OpenVINO itself does not have."""
    for opset, operators in parse_openvino(content.alone()).operators.items():
        if not _is_known(opset):
            names = listed(name[:_MAX_NAME_LENGTH] for name in operators)
            text = f"operators of {opset[:_MAX_NAME_LENGTH]!r} need a library of their own, which runs code: {names}"
            log.add("unknown", text, content)
    return True


def _is_weights(content: Content) -> bool:
    """Say whether a file is the weights of a model beside it: nothing but elements, at places in the model."""
    path = content.source.name
    if content.place or is_remote(path) or not path.lower().endswith(_WEIGHTS):
        return False
    model = path[: -len(_WEIGHTS)] + _MODEL
    if not os.path.isfile(model):
        return False
    with open(model, "rb") as file:
        return begins_like_openvino(file.read(SNIFF_NBYTES))


def _scan_weights(content: Content, log: FindingLog) -> bool:  # noqa: ARG001
    """Return True: nothing in it runs; it was scanned as every other format before."""
    return True


OPENVINO_MODEL: Final = ModelForm("OpenVINO model", _is_model, _scan_model)
OPENVINO_WEIGHTS: Final = ModelForm("weights of an OpenVINO model", _is_weights, _scan_weights)
