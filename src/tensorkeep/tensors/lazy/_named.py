"""Lazy tensors by name, read one by one or many together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from tensorkeep.arrays import ArrayT
from tensorkeep.collector import PausedCollector
from tensorkeep.encryption import Encryption
from tensorkeep.errors import FormatError, SourceMissingError, TensorNotFoundError
from tensorkeep.formats.safetensors import State
from tensorkeep.parallel import Progress
from tensorkeep.tensors.lazy._html import ShownTensors
from tensorkeep.tensors.lazy._lazy import LazyTensor
from tensorkeep.tensors.lazy._name_patterns import did_you_mean
from tensorkeep.tensors.lazy._together import load_parts_together, load_with_progress, plan_together
from tensorkeep.tensors.readers import ReadPlan
from tensorkeep.transport import ByteRange, exists, is_directory, is_remote, join, open_source, split


class NamedTensors(ShownTensors[ArrayT]):
    """Lazy tensors by name, which are read."""

    @property
    @abstractmethod
    def path(self) -> str:
        """The path or URL; for what has none, such as bytes, a name for error messages."""

    @property
    @abstractmethod
    def has_metadata(self) -> bool:
        """Whether there is metadata at all, even if empty."""

    @property
    @abstractmethod
    def metadata(self) -> dict[str, str]:
        """The metadata: free text by key. A new dict, empty if there is none."""

    @property
    def state(self) -> State | None:
        """What the files say of the nested state that the tensors are parts of; None if they say nothing."""
        return None

    @property
    def encryption(self) -> Encryption | None:
        """How the files are encrypted; None if they are not, or there is no key for them."""
        return None

    def companion(self, name: str, *, max_nbytes: int) -> bytes:
        """Return the content of a small file beside the checkpoint; under a policy, only what was signed.

        Args:
            name: Such as `"config.json"`.
            max_nbytes: Refuse what is larger.

        Raises:
            FormatError: If the file is too large.
            TrustError: If the policy demands that it is signed, and it is not, or it was signed and cannot be
                read.
            SourceMissingError: If it is missing.
            TransportError: If it cannot be read.
        """
        if not (is_remote(self.path) or exists(self.path)):  # bytes, or several files, have only a name for messages
            raise SourceMissingError(f"there is nothing beside {self.path}", path=name)
        path = join(self.path if is_directory(self.path) else split(self.path)[0], name)
        with closing(open_source(path, backend="pread")) as source:
            if source.nbytes > max_nbytes:
                raise FormatError(
                    f"`{name}` is too large",
                    path=path,
                    expected=f"at most {max_nbytes:,} bytes",
                    found=f"{source.nbytes:,}",
                )
            return bytes(source.read(ByteRange(0, source.nbytes)))

    @abstractmethod
    def _find(self, name: str) -> LazyTensor[ArrayT] | None:
        """Return the tensor of that name; None if there is none."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(lazy.nbytes for lazy in self.values())

    @property
    def n_elements(self) -> int:
        """Elements of all tensors."""
        return sum(lazy.n_elements for lazy in self.values())

    def __getitem__(self, name: str) -> LazyTensor[ArrayT]:
        """Return a tensor, which is read when it is indexed.

        Raises:
            TensorNotFoundError: If there is no tensor of that name (also a KeyError).
        """
        found = self._find(name)
        if found is None:
            message, hint = f"File does not contain tensor {name}", self._hint_for(str(name))
            raise TensorNotFoundError(message, path=self.path, tensor=str(name), hint=hint)
        return found

    def _hint_for(self, name: str) -> str | None:
        return did_you_mean(name, self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """Return a tensor, which is read when it is indexed.

        Args:
            name: Its name.
            default: What to return if there is no tensor of that name.
        """
        return self[name] if name in self else default  # noqa: SIM401 - this is what it would call

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def load(self, names: Iterable[str] | None = None, *, progress: Progress | None = None) -> dict[str, ArrayT]:
        """Read whole tensors, without a copy if the file is mapped and nothing is cast.

        Args:
            names: Which: several names, or one; all if None.
            progress: Called with the bytes loaded so far and the total, after each batch of at least one tensor; for
                mapped files, which are read when they are used, after each batch is mapped.

        Returns:
            Name to tensor of the framework, in the order of this mapping. The tensors are writable, writing to them
            never reaches a file, and no two share memory.

        Raises:
            TensorNotFoundError: If there is no tensor of a name (also a KeyError).
            DtypeError: If a dtype is unknown here or to the framework.
            IntegrityError: If the file was opened with `verify=True` and bytes do not have their digest.
            LimitError: If a tensor has more dimensions than the framework allows, or an expanded view would take far
                more memory than it takes in the file.
            TransportError: If the bytes cannot be read.
        """
        if names is None:
            return load_with_progress(self._all(), progress)
        asked = {name: self[name] for name in ([names] if isinstance(names, str) else names)}
        in_order = [name for name in self if name in asked] if len(asked) > 1 else list(asked)
        return load_with_progress({name: asked[name] for name in in_order}, progress)

    def load_parts(self, parts: Mapping[str, Any]) -> dict[str, ArrayT]:
        """Read parts of tensors in parallel, which is faster where each request has latency.

            checkpoint.load_parts({"embedding.weight": np.s_[:1000], "norm.weight": ...})

        Args:
            parts: Name to index, as `LazyTensor` takes it; `...` for all of it.

        Returns:
            Name to tensor of the framework, in the order of `parts`.

        Raises:
            TensorNotFoundError: If there is no tensor of a name (also a KeyError).
            SelectionError: If an index does not fit the shape (also an IndexError).
            DtypeError: If a dtype is unknown here or to the framework.
            LimitError: If a tensor has more dimensions than the framework allows.
            TransportError: If the bytes cannot be read.
        """
        return load_parts_together({name: (self[name], index) for name, index in parts.items()})

    def shard(self, name: str, dim: int, rank: int, world: int) -> ArrayT:
        """Read one rank's part of a tensor, cut as `torch.chunk` and DTensor's `Shard` cut it.

        Args:
            name: The tensor's name.
            dim: The dimension that is cut; negative ones count from the last.
            rank: The rank, 0 <= rank < world.
            world: The number of ranks.

        Returns:
            A tensor of the framework; see `LazyTensor.shard`.

        Raises:
            TensorNotFoundError: If there is no tensor of that name (also a KeyError).
            SelectionError: If there is no such dimension or rank (also an IndexError).
            DtypeError: If the dtype is unknown here or to the framework.
            LimitError: If the tensor has more dimensions than the framework allows.
            TransportError: If the bytes cannot be read.
        """
        return self[name].shard(dim, rank, world)

    def plan(self, what: Iterable[str] | Mapping[str, Any] | None = None) -> ReadPlan:
        """Return what a read would cost, without reading.

            print(checkpoint.plan())  # 12 requests, 4,812,672 bytes for 4,812,672 that are wanted
            checkpoint.plan({"embedding.weight": np.s_[:10], "norm.weight": ...})

        Args:
            what: Names of tensors to read whole, or name to index for parts; all tensors if None.

        Returns:
            The requests, their bytes, and the bytes that are wanted.

        Raises:
            TensorNotFoundError: If there is no tensor of a name (also a KeyError).
            SelectionError: If an index does not fit the shape (also an IndexError).
            DtypeError: If a dtype is unknown here.
        """
        if isinstance(what, Mapping):
            return plan_together([], [(self[name], index) for name, index in what.items()])
        names = self if what is None else [what] if isinstance(what, str) else what
        return plan_together([self[name] for name in names], [])

    def _all(self) -> dict[str, LazyTensor[ArrayT]]:
        with PausedCollector():
            return dict(self.items())
