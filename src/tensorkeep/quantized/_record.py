"""What is known of a quantized tensor from headers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME

FindingKind: TypeAlias = Literal[
    "missing", "activations", "contradiction", "reciprocal", "overlap", "declared", "ignored", "method", "unsupported"
]


class HasHeader(Protocol):
    """A tensor whose dtype and shape are known, such as a lazy one or an entry of a header."""

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


class Stored(msgspec.Struct, frozen=True):
    """What a header says of one stored tensor.

    Attributes:
        dtype: Its dtype by the name in the format.
        shape: Its shape.
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def itemsize(self) -> int:
        """Bytes of one element; 0 for dtypes that are unknown here."""
        return ALL_BY_NAME[self.dtype].itemsize if self.dtype in ALL_BY_NAME else 0

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


Headers: TypeAlias = Mapping[str, Stored]
"""All tensors of a checkpoint by their names in it."""


class LayoutFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong or doubtful about how a checkpoint is quantized; `str()` gives one line for people.

    Attributes:
        kind: What it is:

            - `"missing"`: a tensor without which the numbers are not known, such as scales.
            - `"activations"`: scales of inputs or of the KV cache that the configuration says are stored.
            - `"contradiction"`: shapes, dtypes or settings that do not fit each other.
            - `"reciprocal"`: two scales, one to divide by and one to multiply by.
            - `"overlap"`: two groups of the configuration that name the same module and differ.
            - `"declared"`: scales for more or fewer elements than the configuration says.
            - `"ignored"`: a module that is quantized although the configuration leaves it out, or the reverse.
            - `"method"`: a layout of another method than the configuration says.
            - `"unsupported"`: a layout that is recognized, and whose numbers are not known here.
        message: The same in a sentence.
        tensor: The quantized tensor, or the stored one; None if it is about the configuration.
        expected: What should be there, or None.
        found: What is there, or None.
        is_error: Whether the numbers are not known, or loaders would disagree on them or on the outputs.
    """

    kind: FindingKind
    message: str
    tensor: str | None = None
    expected: str | None = None
    found: str | None = None
    is_error: bool = True

    def __str__(self) -> str:
        facts = [f"{label} {fact}" for label, fact in (("expected", self.expected), ("found", self.found)) if fact]
        return f"{self.message}: {', '.join(facts)}" if facts else self.message


class QuantizedTensor(msgspec.Struct, frozen=True):
    """A tensor whose numbers are stored with few bits, mostly in several stored tensors.

    Attributes:
        name: Its name once it is dequantized, such as `"layers.0.q_proj.weight"`.
        layout: How it is stored, such as `"gptq"` or `"nvfp4-pack-quantized"`.
        shape: Its true shape, in elements.
        bits: Bits of one element, without scales.
        form: What the bits are: `"int"`, `"e4m3"`, `"e5m2"`, `"e2m1"`, `"nf4"`, `"fp4"`, or a type of ggml.
        block: Elements along each dimension that share a scale.
        parts: Role to the name of the stored tensor.
        notes: What else the numbers depend on.
    """

    name: str
    layout: str
    shape: tuple[int, ...]
    bits: int
    form: str
    block: tuple[int, ...]
    parts: Mapping[str, str]
    notes: Mapping[str, Any] = {}

    @property
    def group_size(self) -> int | None:
        """Elements of a row that share a scale; None if all do."""
        last = self.block[-1] if self.block else 1
        return last if self.shape and last < self.shape[-1] else None

    @property
    def scheme(self) -> str:
        """Its bits, blocks and zero points, in a few words."""
        kind = f"int{self.bits}" if self.form == "int" else self.form
        zeros = ", zero points" if "zeros" in self.parts else ""
        order = ", act order" if "order" in self.parts else ""
        return f"{kind}, {self._blocks_text()}{zeros}{order}"

    def _blocks_text(self) -> str:
        if all(extent >= whole for extent, whole in zip(self.block, self.shape, strict=True)):
            return "one scale"
        if self.group_size is None:
            return "a scale per row" if all(extent == 1 for extent in self.block[:-1]) else "a scale per matrix"
        if all(extent == 1 for extent in self.block[:-1]):
            return f"groups of {self.group_size}"
        return "blocks of " + "x".join(str(extent) for extent in self.block if extent > 1)


class Layouts(msgspec.Struct, frozen=True):
    """The quantized tensors of a checkpoint, and what is wrong with them.

    Attributes:
        method: What the configuration says, such as `"gptq"` or `"compressed-tensors"`; None if it says nothing.
        tensors: Name to quantized tensor, in the order of the checkpoint.
        broken: Name to what is wrong, for each quantized tensor whose numbers are not known.
        findings: Everything that is wrong or doubtful, also what is in `broken`.
        leftovers: Names of stored tensors that belong to quantized modules and have no use once they are dequantized,
            such as the scales of inputs.
    """

    method: str | None
    tensors: Mapping[str, QuantizedTensor]
    broken: Mapping[str, LayoutFinding] = {}
    findings: tuple[LayoutFinding, ...] = ()
    leftovers: frozenset[str] = frozenset()

    @property
    def n_by_scheme(self) -> dict[str, int]:
        """Layout and scheme, such as `"gptq: int4, groups of 128"`, to how many tensors have them; most first."""
        counts: dict[str, int] = {}
        for tensor in self.tensors.values():
            text = f"{tensor.layout}: {tensor.scheme}"
            counts[text] = counts.get(text, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def part_names(self) -> set[str]:
        """Return the names of all stored tensors that are parts of quantized ones."""
        return {name for tensor in self.tensors.values() for name in tensor.parts.values()}

    def __bool__(self) -> bool:
        return bool(self.tensors or self.broken)


class ContradictionError(Exception):
    """Raised while a tensor is recognized; becomes a finding.

    Attributes:
        finding: That finding.
        parts: Names of the stored tensors that it is about.
    """

    def __init__(self, finding: LayoutFinding, parts: Mapping[str, str]) -> None:
        super().__init__(str(finding))
        self.finding = finding
        self.parts = parts


def wrong(
    name: str,
    message: str,
    parts: Mapping[str, str],
    *,
    kind: FindingKind = "contradiction",
    expected: str | None = None,
    found: str | None = None,
) -> ContradictionError:
    """Return the error for a tensor whose parts do not fit each other."""
    return ContradictionError(
        LayoutFinding(kind, f"tensor `{name}` {message}", name, expected=expected, found=found), parts
    )


def parts_of(headers: Headers, candidates: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the roles whose names are stored; the first name of a role counts."""
    found: dict[str, str] = {}
    for role, name in candidates:
        if name in headers:
            found.setdefault(role, name)
    return found
