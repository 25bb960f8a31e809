"""`check`: do these weights make sense?"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensorkeep.checking._by_executor import Measure, measure_here, measuring_by
from tensorkeep.checking._comparison import AreEqual, Fit, Reference, compare
from tensorkeep.checking._files import examine_files, examine_shard_numbers, examine_strays, is_one_of_several
from tensorkeep.checking._findings import CheckFinding, finding_about
from tensorkeep.checking._layers import examine_biases, examine_layers, stacks_of
from tensorkeep.checking._names import Headers
from tensorkeep.checking._numbers import examine_numbers
from tensorkeep.checking._pipeline import PIPELINE, components_of, missing_components
from tensorkeep.checking._quantized import (
    examine_plain,
    examine_quantized,
    examine_scales,
    packed_in_floats,
    plain_headers,
    quantized_in,
    true_shapes,
)
from tensorkeep.checking._reference import (
    Against,
    NeedsCodeError,
    config_of,
    headers_of,
    read_config,
    reference_of,
)
from tensorkeep.checking._report import CheckReport, in_order
from tensorkeep.checking._settings import Settings, examine_settings
from tensorkeep.checking._ties import equality_of, examine_copies, examine_prefixes, examine_tie, examine_wrappers
from tensorkeep.checkpoint import open_with
from tensorkeep.encryption import KeyLike, Keys
from tensorkeep.errors import FormatError, IntegrityError, SourceMissingError, TrustError, UnsupportedError
from tensorkeep.kinds import Opened, OpenOptions
from tensorkeep.parallel import Progress
from tensorkeep.tensors import LazyTensors
from tensorkeep.transport import exists, is_directory, join, listing_cache

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tensorkeep.trust import Trust

_adapter_part: Final = re.compile(r"lora_[AB]|lora_down|lora_up|lokr_|hada_").search


def check(
    what: str | os.PathLike[str] | LazyTensors,
    *,
    against: Against | None = None,
    data: bool = False,
    variant: str | None = None,
    engine: str | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    trust: Trust | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
) -> CheckReport:
    """Say whether the tensors of a checkpoint make sense together, and for a model.

    From headers alone: layers that are missing, incomplete or of other shapes and dtypes than all others; tensors
    that are stored twice or under a wrapper's name; embeddings, layers and experts that contradict the `config.json`
    beside them; tied weights that differ; files that are missing or that no index lists. Whether bytes are damaged
    is for `verify`.

        tensorkeep.check("model/").findings
        tensorkeep.check("model/", against="model/config.json")  # every name and shape that the architecture has
        tensorkeep.check("run/step-2", against="run/step-1", data=True)

    A config is given to transformers, if that is installed, which builds the model without data in a process of its
    own, offline. Code that a config names (`auto_map`) is never run.

    Args:
        what: A directory, an index or a file of any kind; or an open checkpoint, or a view of one. The components of
            a diffusers pipeline are checked one by one.
        against: What the tensors should be: another checkpoint, or an open one; a `config.json`, or a directory with
            one and no weights; a model, or a class or function that makes one without arguments, on device meta; or
            the name of such a class, `"package.module:Class"`, which is imported. A class of transformers is built
            from the config beside the checkpoint: `"transformers:LlamaForCausalLM"`.
        data: Whether to read all elements too, for NaNs, infinities, zeros, and implausible scales.
        variant: Which checkpoint of a directory: `"fp16"` finds `model.fp16.safetensors` or its shards.
        engine: The library that reads the files instead of tensorkeep; see `open`.
        progress: Called with the bytes read so far and the total, by one thread at a time.
        executor: What reads all elements for `data` in place of threads of this process: any
            `concurrent.futures.Executor` whose tasks can be pickled. All workers must see the same files.
        trust: Whose signatures count; see `open`. Then the checkpoint, the `config.json` beside it, and `against` if
            that is the path of a checkpoint, must be what they signed.
        key: The key of an encrypted checkpoint, the path of a file with it, or several of these; what is not
            encrypted is then refused. `against` may be encrypted or not.

    Returns:
        What was found, worst first. It is true if nothing is wrong.

    Raises:
        SourceMissingError: If there is nothing at a path.
        FormatError: If a file cannot be parsed.
        TrustError: If it is not proven that this is what was signed, or the policy does not allow the format.
        EncryptedError: If names are encrypted, and the key is missing or another one.
        UnsafeError: If a pickle names something that could only do harm.
        LimitError: If a header, index, pickle or config exceeds a bound, or a model takes too long to build.
        MissingDependencyError: If `against` is a config, and transformers or torch is not installed.
        UnsupportedError: If a path cannot be opened, or no model can be built from `against`.
        TypeError: If `against` is something else.
        TransportError: If the bytes cannot be read.

    Examples:
        >>> tensorkeep.check("model.safetensors").is_sound
        True
    """
    if isinstance(what, LazyTensors):
        if executor is not None:
            raise UnsupportedError("workers open the checkpoint themselves", expected="a path, with `executor`")
        for name, given in (("key", key), ("trust", trust)):
            if given is not None:
                raise UnsupportedError(f"`{name}` is for what is not open yet", hint="Give it to tensorkeep.open")
        return _report(what, against, data=data, progress=progress)
    options = OpenOptions(variant=variant, engine=engine, keys=Keys.given(key))
    with listing_cache(os.fspath(what)) as path:
        if is_directory(path) and exists(join(path, PIPELINE)):
            return _of_pipeline(path, options, trust, data=data, progress=progress, executor=executor)
        return _of_path(path, against, options, trust, data=data, progress=progress, executor=executor)


def _of_path(
    path: str,
    against: Any,
    options: OpenOptions,
    trust: Trust | None,
    *,
    data: bool,
    progress: Progress | None,
    executor: Executor | None,
) -> CheckReport:
    """Check what is at a path; files that cannot be opened together are findings."""
    try:
        with open_with(path, options, trust) as opened:
            measure = measure_here if executor is None else measuring_by(executor, path, options, opened)
            found = _report(opened, against, options.keys, trust, data=data, progress=progress, measure=measure)
    except TrustError:
        raise
    except (IntegrityError, SourceMissingError):
        with suppress(SourceMissingError):
            if findings := examine_files(path, options):
                return CheckReport(path=path, findings=in_order(findings))
        raise
    strays = examine_strays(path, options.variant) if is_directory(path) else ()
    return msgspec.structs.replace(found, findings=in_order([*strays, *found.findings]))


def _report(
    tensors: LazyTensors,
    against: Any,
    keys: Keys | None = None,
    trust: Trust | None = None,
    *,
    data: bool,
    progress: Progress | None,
    measure: Measure = measure_here,
) -> CheckReport:
    opened = tensors if isinstance(tensors, Opened) else None
    if opened is not None:
        opened.require_names()
    path = None if opened is None else opened.path
    files = [] if opened is None else list(opened.sources)
    headers = headers_of(tensors)
    are_equal = equality_of(tensors, reads=data)
    settings = None if opened is None else config_of(opened)
    findings = list(_examined(tensors, headers, path, files, settings, are_equal))
    is_part = any(finding.code == "one-shard" for finding in findings)
    quantized = None if is_part else quantized_in(tensors, headers)
    findings += () if quantized is None else examine_quantized(quantized)
    findings += () if is_part else examine_biases(headers, true_shapes(quantized))
    reference: Reference | None = None
    fit: Fit | None = None
    if against is not None:
        try:
            reference = reference_of(against, path, keys, trust)
        except NeedsCodeError as error:
            findings.append(_needs_code(error))
        else:
            compared, fit = compare(plain_headers(headers, quantized), reference, are_equal)
            known = {finding.code for finding in compared}
            findings = [*compared, *(finding for finding in findings if finding.code not in known)]
    if data:
        measured = measure(tensors, progress)
        packed = packed_in_floats(quantized, headers)
        findings += examine_numbers(tensors, {name: each for name, each in measured.items() if name not in packed})
        findings += () if quantized is None else examine_scales(quantized, measured)
    return CheckReport(
        path=tensors.path,
        findings=in_order(findings),
        n_tensors=len(headers),
        n_files=len(files),
        against=None if reference is None else reference.name,
        fit=fit,
        building_s=0.0 if reference is None else reference.seconds,
        has_data=data,
    )


def _examined(
    tensors: LazyTensors,
    headers: Headers,
    path: str | None,
    files: list[str],
    settings: Settings | None,
    are_equal: AreEqual,
) -> Iterator[CheckFinding]:
    """Examine the headers of a checkpoint, and the config beside it."""
    mixed = list(examine_prefixes(headers))
    yield from mixed or examine_wrappers(headers, is_for_others=settings is not None)
    yield from examine_copies(tensors, headers)
    if path is not None and is_one_of_several(files) and path.endswith(files[0]):
        yield finding_about(
            "one-shard",
            "note",
            f"{files[0]} is one of several shards: only what is in it was checked",
            advice="Check the directory or the index",
        )
        return
    yield from examine_shard_numbers(files)
    if any(map(_adapter_part, headers)):
        return  # an adapter is for any layers
    stacks = [] if mixed else stacks_of(headers)
    yield from examine_layers(stacks)
    if settings is not None:
        yield from examine_settings(headers, stacks, settings)
        yield from examine_plain(headers, settings)
        yield from examine_tie(headers, settings, are_equal)


def _needs_code(error: NeedsCodeError) -> CheckFinding:
    return finding_about(
        "needs-code",
        "error",
        "the model of this config is code that comes with it (auto_map), which is never run here",
        expected="a class of transformers",
        found=str(error),
        advice="Compare with another checkpoint of the same model: --against OTHER",
    )


def _of_pipeline(
    path: str,
    options: OpenOptions,
    trust: Trust | None,
    *,
    data: bool,
    progress: Progress | None,
    executor: Executor | None,
) -> CheckReport:
    """Check the components of a diffusers pipeline; a policy must hold for each."""
    components = components_of(read_config(join(path, PIPELINE)))
    present = {name: is_directory(join(path, name)) for name in components}
    own = msgspec.structs.replace(options, engine=None)
    findings = list(missing_components([name for name, is_there in present.items() if not is_there]))
    n_tensors = n_files = 0
    for name in filter(present.get, present):
        try:
            found = _of_path(join(path, name), None, own, trust, data=data, progress=progress, executor=executor)
        except (SourceMissingError, FormatError):  # a tokenizer or a scheduler, without weights
            continue
        n_tensors, n_files = n_tensors + found.n_tensors, n_files + found.n_files
        findings += [
            msgspec.structs.replace(
                finding,
                message=f"{name}: {finding.message}",
                tensors=tuple(f"{name}/{tensor}" for tensor in finding.tensors),
            )
            for finding in found.findings
        ]
    return CheckReport(path=path, findings=in_order(findings), n_tensors=n_tensors, n_files=n_files, has_data=data)
