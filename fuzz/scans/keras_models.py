"""Models of Keras: configurations with layers that are or contain Python code, and HDF5 files with them."""

from __future__ import annotations

import base64
import io
import json
import marshal
from collections.abc import Callable

from fuzz.scans.chance import Chance

__all__ = ["BYTECODE", "configuration", "keras_hdf5"]

BYTECODE = base64.b64encode(marshal.dumps(compile("import recorder", "a", "exec"))).decode()
_CODE = {"class_name": "__lambda__", "config": {"code": BYTECODE, "defaults": None, "closure": None}}
_LAYERS: tuple[object, ...] = (
    {"module": "keras.layers", "class_name": "Dense", "config": {"units": 2}, "registered_name": None},
    {"module": "keras.layers", "class_name": "Lambda", "config": {"function": _CODE}},
    {"module": "keras.layers", "class_name": "Lambda", "config": {"function": [BYTECODE, None, None]}},
    {"class_name": "Lambda", "config": {"function": [BYTECODE, None, None], "function_type": "lambda"}},
    {"class_name": "Lambda", "config": {"function": "relu", "function_type": "function"}},
    {"module": "recorder", "class_name": "mark", "config": {}},
    {"module": None, "class_name": "Lambda", "config": {"function": _CODE}},
    {"module": "keras.layers", "class_name": "Dense", "config": {"units": 2, "activation": _CODE}},
    {"class_name": "Dense", "config": {"units": 2, "activation": _CODE}},
    {"module": "builtins", "class_name": "function", "config": "eval", "registered_name": "function"},
    {"module": "keras.utils", "class_name": "function", "config": "get_file", "registered_name": "function"},
    {"module": "keras.utils", "class_name": "get_file", "config": {"fname": "a", "origin": "http://127.0.0.1:9/"}},
    {"module": "keras.config", "class_name": "function", "config": "enable_unsafe_deserialization"},
    {"module": "keras.layers", "class_name": "StringLookup", "config": {"vocabulary": "/etc/hostname"}},
    {"class_name": "StringLookup", "config": {"vocabulary": "/etc/hostname"}},
    {"module": "keras.layers", "class_name": "TorchModuleWrapper", "config": {"module": "gASVAAAA"}},
)


def _layer(chance: Chance) -> object:
    return _LAYERS[0] if chance.often(0.5) else chance.choice(_LAYERS)


def configuration(chance: Chance) -> dict[str, object]:
    """Return the configuration of a model."""
    return {
        "module": "keras",
        "class_name": "Sequential",
        "config": {"name": "s", "trainable": True, "layers": [_layer(chance), _layer(chance)]},
        "registered_name": None,
    }


def keras_hdf5(chance: Chance, _: Callable[[], bytes]) -> bytes:
    """Return an HDF5 file with a model of Keras in its attributes."""
    import h5py
    import numpy as np

    chance.note("keras in HDF5")
    buffer = io.BytesIO()
    options = {"libver": chance.choice(("earliest", "latest", "v108")), "userblock_size": chance.choice((0, 0, 512))}
    with h5py.File(buffer, "w", track_order=chance.often(0.2), **options) as file:
        for _number in range(chance.choice((0, 0, 3, 20))):
            file.attrs[f"other {_number}"] = _number
        for name in ("model_config", "training_config"):
            text = json.dumps(configuration(chance))
            forms = (text, text, text.encode(), np.bytes_(text), np.array([text], "S"), [1, 2])
            if chance.often(0.8):
                file.attrs[name] = chance.choice(forms)
        if chance.often(0.5):
            file["model_weights/dense/dense/kernel"] = np.ones(2)
    return buffer.getvalue()
