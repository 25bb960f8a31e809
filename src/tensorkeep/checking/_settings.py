"""What `config.json` says about a model's tensors, for the few values that mean the same in nearly every model. Pure.

Everything else that a config implies is known to the library that builds the model: `check(against=...)` asks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from tensorkeep.checking._findings import CheckFinding, finding_about
from tensorkeep.checking._layers import Stack
from tensorkeep.checking._names import Headers
from tensorkeep.texts import listed, shape_text

MAX_CONFIG_NBYTES: Final = 4 * 2**20
"""Bytes of a `config.json`; the largest have 100 kB, for their lists of labels."""

_EMBEDDINGS: Final = ("embed_tokens", "wte", "word_embeddings", "tok_embeddings", "shared", "embed_in")
_HEADS: Final = ("lm_head", "embed_out", "output_layer")
_N_LAYERS: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_N_EXPERTS: Final = ("num_local_experts", "n_routed_experts", "num_experts")
_WIDTHS: Final = ("word_embed_proj_dim", "embedding_size", "hidden_size", "n_embd", "d_model", "dim")
"""Keys for one value; the first that a config has counts."""

_LAYERS: Final = frozenset((
    *("model.layers", "layers", "transformer.h", "h", "gpt_neox.layers", "model.decoder.layers"),
    *("bert.encoder.layer", "roberta.encoder.layer", "encoder.layer"),
    *("model.language_model.layers", "language_model.model.layers", "language_model.layers"),
))
"""Where models of one stack have their layers."""

_MORE_EMBEDDINGS: Final = frozenset(("mllama", "mllama_text_model"))
"""Models whose embedding has more rows than the vocabulary."""

_LIKE_LLAMA: Final = frozenset(["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"])
"""Models whose projections all have these shapes."""


class Settings(msgspec.Struct, frozen=True):
    """The values of a `config.json`: at the top, and of the language model in it."""

    top: Mapping[str, Any]
    text: Mapping[str, Any]

    def number(self, *keys: str) -> int | None:
        """Return the first of some values that is there, if it is a positive whole number."""
        value = next((self.text[key] for key in keys if self.text.get(key) is not None), None)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else None

    @property
    def is_tied(self) -> bool | None:
        """Whether input and output embeddings are one tensor; None if the config leaves it to the library."""
        tied = self.text.get("tie_word_embeddings", self.top.get("tie_word_embeddings"))
        return tied if isinstance(tied, bool) else None

    @property
    def model_type(self) -> str:
        """The name of the architecture, or an empty text."""
        return str(self.text.get("model_type") or "")

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes that the checkpoint is of."""
        names = self.top.get("architectures")
        return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def parse_config(text: bytes) -> Settings | None:
    """Read a `config.json`; None if it is not an object of JSON."""
    try:
        top = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    inner = next((top[key] for key in ("text_config", "llm_config") if isinstance(top.get(key), dict)), top)
    return Settings(top, inner)


def examine_settings(headers: Headers, stacks: list[Stack], settings: Settings) -> Iterator[CheckFinding]:
    """Compare a checkpoint with the config beside it."""
    embedding, head = _only(headers, _EMBEDDINGS), _only(headers, _HEADS)
    if "decoder_vocab_size" not in settings.top:
        yield from _vocabulary(headers, settings, embedding, head)
    for stack in stacks:
        if stack.path in _LAYERS and stack.is_layered:
            yield from _number_of_layers(stack, settings)
            if settings.model_type in _LIKE_LLAMA:
                yield from _projections(stack, settings)
    yield from _numbers_of_experts(stacks, settings)
    if embedding is not None and head is None:
        yield from _missing_head(headers, settings, embedding)


def embedding_and_head(headers: Headers) -> tuple[str, str] | None:
    """Return the names of the input and output embeddings, if there is exactly one of each."""
    embedding, head = _only(headers, _EMBEDDINGS), _only(headers, _HEADS)
    return None if embedding is None or head is None else (embedding, head)


def _only(headers: Headers, modules: tuple[str, ...]) -> str | None:
    ends = tuple(f"{module}.weight" for module in modules)
    named = [name for name in headers if name.endswith(ends)]
    found = [name for name in named if name.split(".")[-2] in modules and len(headers[name].shape) == 2]
    return found[0] if len(found) == 1 else None


def _vocabulary(
    headers: Headers, settings: Settings, embedding: str | None, head: str | None
) -> Iterator[CheckFinding]:
    n_tokens, width = settings.number("vocab_size"), settings.number(*_WIDTHS)
    for name in (embedding, head):
        if name is None or not _is_plain(headers[name].dtype):
            continue
        rows, columns = headers[name].shape
        has_more = settings.model_type in _MORE_EMBEDDINGS and name == embedding and rows > (n_tokens or 0)
        if n_tokens is not None and rows != n_tokens and not has_more:
            yield finding_about(
                "vocab-size",
                "error",
                f"`{name:.200}` has a different number of rows than config.json has tokens",
                [name],
                expected=f"{n_tokens:,} rows (vocab_size)",
                found=f"{rows:,}",
                advice="Write the number of rows into config.json, or pad the tensor to the number there",
            )
        if width is not None and columns != width:
            yield finding_about(
                "hidden-size",
                "error",
                f"`{name:.200}` has another width than config.json says",
                [name],
                expected=f"{width:,} columns",
                found=f"{columns:,}",
                advice="Use the config.json that was saved with these tensors",
            )


def _number_of_layers(stack: Stack, settings: Settings) -> Iterator[CheckFinding]:
    n_expected = settings.number(*_N_LAYERS)
    if n_expected is None:
        return
    n_found = max(stack.n_by_layer) + 1
    n_extra = settings.number("num_nextn_predict_layers", "num_mtp_layers") or 0
    if n_found < n_expected or n_found > n_expected + n_extra:
        yield finding_about(
            "layer-count",
            "error",
            f"`{stack.path:.200}` has {'fewer' if n_found < n_expected else 'more'} layers than config.json says",
            [f"{stack.path}.{layer}" for layer in range(n_expected, n_found) if layer in stack.n_by_layer],
            expected=f"{n_expected:,} layers",
            found=f"{n_found:,}",
            advice="Get the missing files, or use the config.json that was saved with these tensors",
        )


def _numbers_of_experts(stacks: list[Stack], settings: Settings) -> Iterator[CheckFinding]:
    n_expected = settings.number(*_N_EXPERTS)
    if n_expected is None:
        return
    wrong = {
        stack.path: len(stack.n_by_layer)
        for stack in stacks
        if stack.path.endswith(".experts") and len(stack.n_by_layer) != n_expected
    }
    if wrong:
        yield finding_about(
            "expert-count",
            "error",
            "layers have a different number of experts than config.json says",
            list(wrong),
            expected=f"{n_expected:,} experts",
            found=listed(f"{n:,}" for n in Counter(wrong.values())),
            advice="Get the missing files, or use the config.json that was saved with these tensors",
        )


def _projections(stack: Stack, settings: Settings) -> Iterator[CheckFinding]:
    hidden, inner = settings.number("hidden_size"), settings.number("intermediate_size")
    n_heads = settings.number("num_attention_heads")
    if hidden is None or inner is None or n_heads is None:
        return
    size = settings.number("head_dim") or hidden // n_heads
    n_groups = settings.number("num_key_value_heads") or n_heads
    shapes = {
        "self_attn.q_proj.weight": (n_heads * size, hidden),
        "self_attn.k_proj.weight": (n_groups * size, hidden),
        "self_attn.v_proj.weight": (n_groups * size, hidden),
        "self_attn.o_proj.weight": (hidden, n_heads * size),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    for name, expected in shapes.items():
        wrong = {
            layer: header
            for layer, header in stack.tensors.get(name, {}).items()
            if header.shape != expected and _is_plain(header.dtype)
        }
        if wrong:
            found = next(iter(wrong.values())).shape
            turned = ", which is transposed" if found == expected[::-1] else ""
            yield finding_about(
                "shape",
                "error",
                f"`{name}` has another shape than config.json implies",
                [stack.name(layer, name) for layer in wrong],
                expected=shape_text(expected),
                found=f"{shape_text(found)}{turned}",
                advice="Use the config.json that was saved with these tensors",
            )


def _missing_head(headers: Headers, settings: Settings, embedding: str) -> Iterator[CheckFinding]:
    """Find a language model without an output layer, although the config says that it is not the embedding."""
    rows = headers[embedding].shape[0]
    like_head = (
        name
        for name, header in headers.items()
        if name != embedding and (header.shape[:1] == (rows,) or any(head in name for head in _HEADS))
    )
    is_language_model = any(name.endswith("ForCausalLM") for name in settings.classes)
    if is_language_model and settings.is_tied is False and next(like_head, None) is None:
        yield finding_about(
            "head-missing",
            "error",
            "there is no output layer, and config.json says that the embedding is not used for it",
            [embedding],
            expected="lm_head.weight, or tie_word_embeddings = true",
            found="no tensor with as many rows as the embedding",
            advice="Get lm_head.weight, or set tie_word_embeddings in config.json if the model was trained so",
        )


def _is_plain(dtype: str) -> bool:
    """Whether a dtype is of numbers that are not packed: shapes of packed ones mean something else."""
    return dtype.startswith(("F16", "F32", "F64", "BF16", "F8"))
