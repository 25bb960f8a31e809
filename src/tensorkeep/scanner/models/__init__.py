"""Formats that describe models: what a program that builds the model would run, import or open.

- `_base`: `ModelForm`, the record of a format.
- `_hdf5`: HDF5 files.
- `_gguf`: chat templates of GGUF files.
- `_chat_template`: chat templates in files of their own.
- `_template_texts`: which variables of a template may hold texts that it puts together.
- `_templates`: what a Jinja template uses beyond plain templating.
- `_keras_config`: what Keras would run to build a model from its configuration.
- `_keras`: that configuration, as a file of JSON.
- `_arrow`: pickled types in Arrow's files.
- `_orbax`: the files of orbax checkpoints.
- `_onnx`: operators of ONNX models.
- `_openvino`: OpenVINO's models and their weights.
- `_paddle`: operators of Paddle's programs.
- `_tensorflow`: TensorFlow's programs and checkpoints.
- `_table`: all formats.
"""

from tensorkeep.scanner.models._table import scan_models

__all__ = ["scan_models"]
