"""Tensors of one model compared with each other: gaps, odd shapes and dtypes of layers, and biases. Pure.

A stack is what is numbered below one name, such as `model.layers`. Nothing here knows an architecture, and sound
models differ between layers in many ways. So only a single layer that differs from all others, which are alike, is
reported, and not at the ends of a stack, where models put special layers.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Final

import msgspec

from tensorkeep.checking._findings import CheckFinding, finding_about
from tensorkeep.checking._names import Header, Headers, Renamed, Shape, renamed_pairs
from tensorkeep.collector import PausedCollector
from tensorkeep.texts import listed, shape_text

_LAYER_NAMES: Final = frozenset((
    *("layers", "layer", "h", "blocks", "block", "blk", "resblocks", "experts", "encoders", "decoders"),
    *("transformer_blocks", "single_transformer_blocks", "double_blocks", "single_blocks"),
))
"""What models call stacks whose layers all have parameters; others may have gaps where a layer has none."""

_LEAST_LAYERS: Final = 4
_LEAST_MODULES: Final = 3
"""Least layers, and modules in each, for one that differs to be odd: a stack of single modules may well narrow."""

_numbers: Final = re.compile(r"\.(0|[1-9][0-9]{0,5})(?=\.)").finditer
_MAX_NUMBERS: Final = 4
"""Numbers in one name that can be numbers of layers: time must not depend on odd names."""

_MAX_MISNAMED: Final = 16
"""Names of a layer that are compared with others: a layer with more of them is of another kind."""

_MAX_FINDINGS: Final = 100

_WITH_SHAPE: Final = frozenset(("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"))
"""Dtypes of weights whose stored shape is their own: others are packed, or parts of quantized ones."""

_WIDE: Final = frozenset(("F64", "F32", "F16", "BF16"))
"""Dtypes that should be equal in all layers of a model; narrower ones depend on how a layer was quantized."""


class Stack(msgspec.Struct):
    """What is numbered below one name.

    Attributes:
        path: The name, such as `model.layers`.
        tensors: Name within a layer to layer number to header.
        n_by_layer: Number of tensors in each layer.
    """

    path: str
    tensors: dict[str, dict[int, Header]]
    n_by_layer: Counter[int]

    @property
    def is_layered(self) -> bool:
        """Whether each layer has several modules, so that layers can be compared."""
        return len({name.rpartition(".")[0] for name in self.tensors} - {""}) >= _LEAST_MODULES

    def name(self, layer: int, inner: str) -> str:
        """Return the full name of a tensor."""
        return f"{self.path}.{layer}.{inner}"


def stacks_of(headers: Headers) -> list[Stack]:
    """Find the stacks of a checkpoint."""
    found: defaultdict[str, defaultdict[str, dict[int, Header]]] = defaultdict(lambda: defaultdict(dict))
    with PausedCollector():
        before, places = None, []
        for name, header in headers.items():
            module, _, last = name.rpartition(".")
            if module != before:
                before, places = module, list(_places(module))
            for path, inner, layer in places if last else ():
                found[path][inner + last][layer] = header
        return [
            Stack(path, tensors, Counter(chain.from_iterable(tensors.values()))) for path, tensors in found.items()
        ]


def _places(module: str) -> Iterator[tuple[str, str, int]]:
    """Give the stacks that a module is in, its name within a layer with a dot at the end, and the layer."""
    name = f"{module}."
    for number in islice(_numbers(name), _MAX_NUMBERS):
        start, stop = number.span()
        yield name[:start], name[stop + 1 :], int(name[start + 1 : stop])


def examine_layers(stacks: list[Stack]) -> Iterator[CheckFinding]:
    """Compare the layers of each stack; after very many findings, more say nothing new."""
    return islice(_findings_of(stacks), _MAX_FINDINGS)


def _findings_of(stacks: list[Stack]) -> Iterator[CheckFinding]:
    seen: set[tuple[str, str]] = set()
    for stack in stacks:
        if not stack.is_layered:
            continue
        yield from _gaps(stack)
        if len(stack.n_by_layer) >= _LEAST_LAYERS:
            for find in (_lacking, _of_other_shapes, _of_other_dtypes):
                for finding in find(stack):
                    keys = {(finding.code, name) for name in finding.tensors}
                    if not keys <= seen:  # a tensor of nested stacks is found in each
                        seen |= keys
                        yield finding


def examine_biases(headers: Headers, quantized: Mapping[str, Shape]) -> Iterator[CheckFinding]:
    """Find biases that no layer can add to what it computes with the weight beside them, quantized or not."""
    wrong: dict[str, tuple[Shape, Shape]] = {}
    for name, header in headers.items():
        if name.endswith(".bias") and len(header.shape) == 1 and header.shape[0] > 1:
            weight = f"{name[:-5]}.weight"
            stored = headers.get(weight)
            shape = stored.shape if stored is not None and stored.dtype in _WITH_SHAPE else None
            shape = quantized.get(weight, shape)
            if shape is not None and not _fits(header.shape[0], shape):
                wrong[name] = header.shape, shape
    for name, (found, shape) in list(wrong.items())[:1]:
        yield finding_about(
            "bias-shape",
            "error",
            "biases of another length than their weights have rows",
            list(wrong),
            expected=f"[{shape[0]:,}], for a weight of {shape_text(shape)}",
            found=f"{shape_text(found)} in `{name:.200}`",
            advice="Compare it with the checkpoint that the tensors came from: tensorkeep check --against OTHER",
        )


def _fits(length: int, weight: Shape) -> bool:
    """Say whether a bias can be for a weight: some libraries keep matrices transposed, convolutions have groups."""
    if len(weight) < 2 or 0 in weight:
        return math.prod(weight) in {0, 1, length}
    return length in weight or (len(weight) > 2 and length % weight[1] == 0)


def _gaps(stack: Stack) -> Iterator[CheckFinding]:
    present = stack.n_by_layer
    n = max(present) + 1
    n_missing = n - len(present)
    if n_missing and 4 * n_missing <= len(present) and stack.path.rpartition(".")[2] in _LAYER_NAMES:
        missing = [layer for layer in range(n) if layer not in present]
        yield finding_about(
            "layer-missing",
            "error",
            f"the numbers of `{stack.path:.200}` have gaps",
            [f"{stack.path}.{layer}" for layer in missing],
            expected=f"{n:,} layers, 0 to {n - 1}",
            found=f"none with the numbers {listed(missing)}",
            advice="Get the file that holds these layers, or give the others consecutive numbers",
        )


def _lacking(stack: Stack) -> Iterator[CheckFinding]:
    """Find tensors that all layers but one have."""
    layers, n = stack.n_by_layer, len(stack.n_by_layer)
    inner_layers = sorted(layers)[1:-1]
    lacked: dict[int, dict[str, Header]] = {}
    own: dict[int, dict[str, Header]] = {}
    for inner, by_layer in stack.tensors.items():
        if len(by_layer) == n - 1:
            layer = next(layer for layer in layers if layer not in by_layer)
            lacked.setdefault(layer, {})[inner] = next(iter(by_layer.values()))
        elif len(by_layer) == 1:
            layer, header = next(iter(by_layer.items()))
            own.setdefault(layer, {})[inner] = header
    for layer in inner_layers:
        missing, extra = lacked.get(layer, {}), own.get(layer, {})
        if not missing:
            continue
        pairs = list(renamed_pairs(missing, extra)) if len(missing) == len(extra) <= _MAX_MISNAMED else []
        if len(pairs) == len(missing):
            yield _misnamed(stack, layer, pairs)
        elif not extra:
            yield finding_about(
                "layer-incomplete",
                "error",
                f"layer {layer} of `{stack.path:.200}` lacks tensors that all other layers have",
                [stack.name(layer, inner) for inner in missing],
                expected=f"{max(layers.values()):,} tensors in each of {n:,} layers",
                found=f"{layers[layer]:,} in this one",
                advice="Get these tensors again from where the checkpoint was made",
            )


def _misnamed(stack: Stack, layer: int, pairs: list[Renamed]) -> CheckFinding:
    return finding_about(
        "misnamed",
        "error",
        f"layer {layer} of `{stack.path:.200}` has tensors under other names than all other layers",
        [stack.name(layer, pair.found) for pair in pairs],
        expected=listed(stack.name(layer, pair.expected) for pair in pairs),
        found=listed(stack.name(layer, pair.found) for pair in pairs),
        advice="Rename them: tensorkeep edit PATH --rename OLD=NEW",
    )


def _of_other_shapes(stack: Stack) -> Iterator[CheckFinding]:
    """Find layers with one module, or all modules, of another shape than in all other layers."""
    layers = sorted(stack.n_by_layer)
    usual = stack.n_by_layer.most_common()
    n_tensors = Counter(stack.n_by_layer.values()).most_common(1)[0][0] if usual else 0
    odd: dict[int, dict[str, tuple[Shape, Shape]]] = {}
    for inner, by_layer in stack.tensors.items():
        if len(by_layer) >= _LEAST_LAYERS and len({header.shape for header in by_layer.values()}) == 2:
            shapes = Counter(header.shape for header in by_layer.values())
            (expected, _), (found, n_odd) = shapes.most_common()
            if n_odd == 1:
                layer = next(layer for layer, header in by_layer.items() if header.shape == found)
                odd.setdefault(layer, {})[inner] = expected, found
    for layer in layers[1:-1]:
        found_here = odd.get(layer)
        if not found_here or stack.n_by_layer[layer] != n_tensors:
            continue
        modules = {inner.rpartition(".")[0] for inner in found_here}
        if len(modules) == 1 or len(found_here) == n_tensors:
            inner, (expected, found) = next(iter(found_here.items()))
            yield finding_about(
                "shape-odd",
                "error",
                f"layer {layer} of `{stack.path:.200}` has other shapes than all other layers, which are alike",
                [stack.name(layer, inner) for inner in found_here],
                expected=shape_text(expected),
                found=f"{shape_text(found)} in `{inner:.200}`",
                advice="Compare it with the checkpoint that the tensors came from: tensorkeep check --against OTHER",
            )


def _of_other_dtypes(stack: Stack) -> Iterator[CheckFinding]:
    """Find tensors of another dtype than most tensors of the same name in other layers."""
    odd: list[str] = []
    first: tuple[str, str] | None = None
    for inner, by_layer in stack.tensors.items():
        present = {header.dtype for header in by_layer.values()}
        if len(by_layer) < _LEAST_LAYERS or len(present) < 2 or not present <= _WIDE or "." not in inner:
            continue
        dtypes = Counter(header.dtype for header in by_layer.values())
        usual, n_usual = dtypes.most_common(1)[0]
        if 4 * n_usual >= 3 * len(by_layer):
            others = [(layer, header.dtype) for layer, header in by_layer.items() if header.dtype != usual]
            odd += [stack.name(layer, inner) for layer, _ in others]
            first = first or (usual, others[0][1])
    if first is not None:
        yield finding_about(
            "dtype-mixed",
            "warning",
            f"tensors of `{stack.path:.200}` have another dtype than their counterparts in most layers",
            odd,
            expected=first[0],
            found=first[1],
            advice="Cast them if that was not meant: tensorkeep reshard PATH DIRECTORY --cast DTYPE",
        )
