"""The arguments that all overloads of `open` and `load` have in common; their docstrings explain them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from tensorkeep.encryption import KeyLike
from tensorkeep.formats.pickles import Dangerous, PickleLimits
from tensorkeep.parallel import Progress
from tensorkeep.state import Classes
from tensorkeep.tensors import Selector, Ties
from tensorkeep.transport import Backend
from tensorkeep.trust import Trust


class _CommonKeywords(TypedDict, total=False):
    device: Any
    backend: Backend
    variant: str | None
    check: bool
    verify: bool
    strict: bool
    dangerous: Dangerous
    limits: PickleLimits
    engine: str | None
    dtypes: Mapping[str, Any] | None
    trust: Trust | None
    key: KeyLike | Sequence[KeyLike] | None


class OpenKeywords(_CommonKeywords, total=False):
    """The keyword arguments of `open` beside `framework`."""

    max_header_nbytes: int


class LoadKeywords(_CommonKeywords, total=False):
    """The keyword arguments of `load` beside `framework`."""

    only: Selector | Iterable[Selector] | None
    classes: Classes
    ties: Ties
    device_map: Mapping[str, Any] | None
    progress: Progress | None
    dequantize: Any
