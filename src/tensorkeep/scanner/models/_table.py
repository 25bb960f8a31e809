"""All formats of models. To add one, add its record to `MODELS`."""

from __future__ import annotations

from typing import Final

from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._arrow import ARROW
from tensorkeep.scanner.models._base import ModelForm
from tensorkeep.scanner.models._chat_template import CHAT_TEMPLATE
from tensorkeep.scanner.models._gguf import GGUF
from tensorkeep.scanner.models._hdf5 import HDF5_FILE
from tensorkeep.scanner.models._keras import KERAS_CONFIG
from tensorkeep.scanner.models._onnx import ONNX_MODEL
from tensorkeep.scanner.models._openvino import OPENVINO_MODEL, OPENVINO_WEIGHTS
from tensorkeep.scanner.models._orbax import ORBAX
from tensorkeep.scanner.models._paddle import PADDLE_PROGRAM
from tensorkeep.scanner.models._tensorflow import TENSORFLOW_CHECKPOINT, TENSORFLOW_FINGERPRINT, TENSORFLOW_PROGRAM

MODELS: Final[tuple[ModelForm, ...]] = (
    ARROW,
    CHAT_TEMPLATE,
    GGUF,
    HDF5_FILE,
    KERAS_CONFIG,
    ONNX_MODEL,
    OPENVINO_MODEL,
    OPENVINO_WEIGHTS,
    ORBAX,
    PADDLE_PROGRAM,
    TENSORFLOW_CHECKPOINT,
    TENSORFLOW_FINGERPRINT,
    TENSORFLOW_PROGRAM,
)


def scan_models(content: Content, log: FindingLog) -> bool:
    """Scan content as every format of models it may be, and return whether it is one."""
    is_one = False
    for form in MODELS:
        with log.recording_errors(content):
            if form.is_one(content) and form.scan(content, log):
                is_one = True
                log.name_form(form.name, content)
    return is_one
