"""Whole states of Keras, with any backend: models, optimizers, metrics and random generators.

    from tensorkeep.keras import capture, restore

`tensorkeep.integrations.keras` has a callback that saves them while a model is trained.
"""

from tensorkeep.errors import importing

with importing(
    keras="keras",
    **{
        backend: f"{backend}, or set the environment variable KERAS_BACKEND to a backend of Keras that is installed"
        for backend in ("jax", "openvino", "tensorflow", "torch")
    },
):
    import keras  # noqa: F401

from tensorkeep.runs.keras import capture, restore

__all__ = ["capture", "restore"]
