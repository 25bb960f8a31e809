"""What a store reads: its steps, which of them are the latest and the best, and what was saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, overload

from tensorkeep.encryption import Keys
from tensorkeep.kinds import LoadOptions, OpenOptions
from tensorkeep.kinds.safetensors import SavedDirectory
from tensorkeep.parallel import Progress
from tensorkeep.state import Classes
from tensorkeep.store._html import steps_html
from tensorkeep.store._loading import StepLoader
from tensorkeep.store._rules import Rules
from tensorkeep.store._step_errors import listing_steps
from tensorkeep.store._steps import StepListing, StepReader, latest_of, whole_metrics
from tensorkeep.store.places import Place, StepFiles, check_step, read_record
from tensorkeep.tensors import Selector, Ties

if TYPE_CHECKING:
    from typing import Unpack

    import cupy
    import jax
    import mlx.core as mx
    import paddle
    import tensorflow as tf
    import torch
    from numpy.typing import NDArray

    from tensorkeep.arrays import CupyName, JaxName, MlxName, NumpyName, PaddleName, TensorflowName, TorchName

WhichStep: TypeAlias = int | Literal["latest", "best"]
"""The number of a step, or what it is."""


class LoadKeywords(TypedDict, total=False):
    """The keyword arguments of `load` beside `framework`."""

    only: Selector | Iterable[Selector] | None
    classes: Classes
    ties: Ties
    device: Any
    verify: bool
    progress: Progress | None


class SavedSteps:
    """The steps in one place: what is there, and what it says."""

    def __init__(self, place: Place, rules: Rules, keys: Keys | None = None) -> None:
        self._place = place
        self._keys = keys
        self._rules = rules
        self._steps = StepReader(place)
        self._loader = StepLoader(place, self._steps, rules, keys)

    @property
    def root(self) -> str:
        """The absolute path of the directory, or the URL."""
        return self._place.root

    def listing(self) -> list[StepListing]:
        """Return all steps with their sizes, whole or not, ascending; no tensor's data is read.

        Raises:
            SourceMissingError: If the directory does not exist.
            TransportError: If the store cannot be read.
        """
        self._place.require()
        found, files = self._steps.newest_first(), self._place.measure()
        best, latest = self._rules.best_if_known(whole_metrics(found), stacklevel=2), latest_of(found)
        return [
            StepListing(step, files.get(step.step, StepFiles(0, 0, 0)), step.step == latest, step.step == best)
            for step in sorted(found, key=lambda step: step.step)
        ]

    def steps(self) -> list[int]:
        """Return the numbers of all whole steps, ascending.

        The shard index and all headers of a whole step are as saved, and its files have their size. In a bucket,
        headers are not read.

        Raises:
            TransportError: If the store cannot be read.
        """
        return list(whole_metrics(self._steps.survey()))

    def __iter__(self) -> Iterator[int]:
        return iter(self.steps())

    def __len__(self) -> int:
        return len(self.steps())

    def __contains__(self, step: object) -> bool:
        return step in self.steps()

    def latest(self) -> int | None:
        """Return the number of the whole step that was saved last, even if others are higher; None if there is none.

        Raises:
            TransportError: If the store cannot be read.
        """
        return latest_of(self._steps.newest_first())

    def best(self) -> int | None:
        """Return the number of the whole step with the best metric, the lowest of equal ones; None if none has it.

        Raises:
            FormatError: If the recorded rules are damaged.
            UnsupportedError: If they need a later version.
            TransportError: If the store cannot be read.
        """
        return self._rules.best_of(whole_metrics(self._steps.survey()))

    def path_of(self, step: int) -> str:
        """Return the directory or URL of a step, which need not exist.

        Args:
            step: Its number.

        Raises:
            UnsupportedError: If the number is invalid.
        """
        return self._place.path_of(check_step(step))

    def metrics_of(self, step: int) -> dict[str, float]:
        """Return the metrics of a step.

        Args:
            step: Its number.

        Returns:
            A new dict of metric name to value.

        Raises:
            SourceMissingError: If there is no such step.
            IntegrityError: If it is incomplete or damaged.
            FormatError: If one of its files is malformed.
            UnsupportedError: If the number is invalid, the step was not written by a store, or needs a later version.
            TransportError: If it cannot be read.
        """
        with self.open(step) as opened:
            record = read_record(opened.index_metadata)
        return {} if record is None else dict(record.metrics)

    @overload
    def open(self, step: int, *, framework: NumpyName = ..., device: Any = ...) -> SavedDirectory[NDArray[Any]]: ...
    @overload
    def open(self, step: int, *, framework: TorchName, device: Any = ...) -> SavedDirectory[torch.Tensor]: ...
    @overload
    def open(self, step: int, *, framework: JaxName, device: Any = ...) -> SavedDirectory[jax.Array]: ...
    @overload
    def open(self, step: int, *, framework: TensorflowName, device: Any = ...) -> SavedDirectory[tf.Tensor]: ...
    @overload
    def open(self, step: int, *, framework: MlxName, device: Any = ...) -> SavedDirectory[mx.array]: ...
    @overload
    def open(self, step: int, *, framework: PaddleName, device: Any = ...) -> SavedDirectory[paddle.Tensor]: ...
    @overload
    def open(self, step: int, *, framework: CupyName, device: Any = ...) -> SavedDirectory[cupy.ndarray]: ...
    @overload
    def open(self, step: int, *, framework: str, device: Any = ...) -> SavedDirectory: ...
    def open(self, step: int, *, framework: str = "numpy", device: Any = "cpu") -> SavedDirectory:
        """Open a step as a read-only mapping of name to `LazyTensor`, like `tensorkeep.open`.

        It stays readable if the step is removed meanwhile.

        Args:
            step: Its number.
            framework: The array library of loaded tensors; see `tensorkeep.open`.
            device: Where loaded torch tensors go.

        Raises:
            SourceMissingError: If there is no such step.
            IntegrityError: If it is incomplete or damaged.
            FormatError: If one of its files is malformed.
            UnsupportedError: If the number is invalid, the step was not written by a store, or needs a later version.
            TransportError: If it cannot be read.
        """
        with listing_steps(self._steps):
            return self._place.open(check_step(step), OpenOptions(framework, device, keys=self._keys))

    @overload
    def load(self, step: WhichStep = ..., *, framework: None = None, **options: Unpack[LoadKeywords]) -> Any: ...
    @overload
    def load(
        self, step: WhichStep = ..., *, framework: NumpyName, **options: Unpack[LoadKeywords]
    ) -> dict[str, NDArray[Any]]: ...
    @overload
    def load(
        self, step: WhichStep = ..., *, framework: TorchName, **options: Unpack[LoadKeywords]
    ) -> dict[str, torch.Tensor]: ...
    @overload
    def load(
        self, step: WhichStep = ..., *, framework: JaxName, **options: Unpack[LoadKeywords]
    ) -> dict[str, jax.Array]: ...
    @overload
    def load(
        self, step: WhichStep = ..., *, framework: TensorflowName, **options: Unpack[LoadKeywords]
    ) -> dict[str, tf.Tensor]: ...
    @overload
    def load(
        self, step: WhichStep = ..., *, framework: MlxName, **options: Unpack[LoadKeywords]
    ) -> dict[str, mx.array]: ...
    @overload
    def load(
        self, step: WhichStep = ..., *, framework: PaddleName, **options: Unpack[LoadKeywords]
    ) -> dict[str, paddle.Tensor]: ...
    @overload
    def load(
        self, step: WhichStep = ..., *, framework: CupyName, **options: Unpack[LoadKeywords]
    ) -> dict[str, cupy.ndarray]: ...
    @overload
    def load(self, step: WhichStep = ..., *, framework: str | None, **options: Unpack[LoadKeywords]) -> Any: ...
    def load(
        self,
        step: WhichStep = "latest",
        *,
        only: Selector | Iterable[Selector] | None = None,
        classes: Classes = (),
        ties: Ties = "share",
        framework: str | None = None,
        device: Any = "cpu",
        verify: bool = True,
        progress: Progress | None = None,
    ) -> Any:
        """Load the state of a step.

        Args:
            step: Its number, `"latest"` (the one saved last) or `"best"`.
            only: Which parts of the state to load; see `tensorkeep.load`.
            classes: Dataclasses, enums and named tuples that may be created; see `tensorkeep.load`.
            ties: What to do with tensors that shared memory; see `tensorkeep.load`.
            framework: The array library of all tensors; None for the one that each was saved from.
            device: Where torch tensors go.
            verify: Whether to check every byte of the step against its digest before anything is returned; in a
                bucket, every byte that is loaded. If the latest step is damaged, it issues a `DamagedStepWarning`,
                and the one saved before it is loaded.
            progress: Called with the bytes done so far and the total, first while the step is verified, then while
                it is loaded.

        Returns:
            The state that was saved.

        Raises:
            SourceMissingError: If there is no such step, or for `"latest"` no whole one.
            IntegrityError: If the step is damaged.
            UnsupportedError: If an argument is invalid, or the step was not written by a store or needs a later
                version.
            FormatError: If the description of the state is malformed.
            LimitError: If it is nested too deep, or a tensor has more dimensions than the framework allows.
            StateError: If one of `classes` is not a class.
            TensorNotFoundError: If `only` selects nothing.
            SharedMemoryError: If tensors share memory and `ties` is `"error"`.
            DtypeError: If a dtype is unknown to this version or to the framework.
            MissingDependencyError: If the library that tensors were saved from is not installed.
            TransportError: If it cannot be read.
        """
        loading = LoadOptions(only, classes, ties, framework, device, progress=progress)
        read = partial(SavedDirectory.load_state, options=loading)
        is_read_once = verify and self._place.reads_cost  # checked on its way, as far as it is read
        opening = OpenOptions(framework or "numpy", device, verify=is_read_once)
        return self._loader.load(step, opening, read, checks=verify and not is_read_once, progress=progress)

    def _repr_html_(self) -> str:
        return steps_html(self.root, self.listing())
