"""`ModelForm`: how files of one format are recognized, and scanned for what runs when a model is built from them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog


class ModelForm(msgspec.Struct, frozen=True):
    """A format that describes a model, not only its tensors.

    Attributes:
        name: What such a file is, without an article, such as `"ONNX model"`.
        is_one: Recognizes a file or a member of an archive, by its name or with as few reads as possible.
        scan: Adds what a program that builds the model would run, import or open to the findings, and returns whether
            the content is of this format after all. Errors of tensorkeep become findings.
    """

    name: str
    is_one: Callable[[Content], bool]
    scan: Callable[[Content, FindingLog], bool]
