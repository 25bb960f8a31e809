"""Verify whatever is at a path: is every byte the one that was saved?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from tensorkeep.checkpoint.verifying._kept import answer_by_kept_sums, with_kept_sum
from tensorkeep.checkpoint.verifying._run import run_checks
from tensorkeep.checkpoint.verifying._unopened import damage_of
from tensorkeep.encryption import KeyLike, Keys
from tensorkeep.errors import FormatError, IntegrityError, SelectionError, UnsupportedError
from tensorkeep.kinds import Checks, OpenOptions, Place, Verification, policy_for
from tensorkeep.kinds.registry import find_kind
from tensorkeep.on_demand import imported
from tensorkeep.transport import listing_cache

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tensorkeep.trust import Trust

_TRUSTED: Final = "tensorkeep.checkpoint.verifying._trusted:trusted_checks"
_REFUSED: Final = "tensorkeep.checkpoint.verifying._trusted:refused_format"
"""Imported by name: most who verify ask for no signature."""


def verify(
    path: str | os.PathLike[str],
    *,
    names: Iterable[str] | None = None,
    sample: float | None = None,
    variant: str | None = None,
    seed: int | None = None,
    engine: str | None = None,
    trust: Trust | None = None,
    quick: bool = False,
    progress: Callable[[int, int], None] | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    executor: Executor | None = None,
) -> Verification:
    """Check a checkpoint against the digests saved with it. Damage is reported, not raised.

    That includes files and indexes too damaged to open, such as an interrupted download; what does not begin
    like a checkpoint is an error. `if tensorkeep.verify(path):` is true only if the result `is_whole`.

    The index and all headers are always checked; `names` and `sample` limit which tensors' bytes are.

    A directory with a manifest, such as a trainer's checkpoint, is checked with every file that the manifest lists,
    unless `names`, `sample` or `variant` is given.

    Other formats have weaker checks. `torch.save` archives carry a CRC-32 of each storage, which torch never checks.
    In a directory of torch.distributed.checkpoint, each part of each tensor must exist with the declared dtype and
    shape, and match the CRC-32 in its archive.

    Where a file has no digests, the SHA-256 that somebody else keeps of it is compared: the Hub, huggingface_hub's
    folders, a `fetch` from the Hub. Where the index records a SHA-256 and the Hub keeps another, that file is damage
    before any of its data is read.

    Args:
        path: A directory, an index or a file.
        names: Tensors to check, by name or shell pattern; all if None.
        sample: Fraction of the bytes to check, in (0, 1]; tensors are drawn at random.
        variant: Which checkpoint to verify in a directory: `"fp16"` finds `model.fp16.safetensors` or its shards.
        seed: Makes the sample reproducible.
        engine: The library that reads the files instead of tensorkeep; see `open`.
        trust: Whose signatures count: a `Policy`, the path of one or of a public key. Then every signed file is
            checked whole, and files that are missing, or that nobody signed, are found too, and formats and pickles
            that the policy does not allow to be opened. None takes the policy that the environment variable
            `TENSORKEEP_TRUST` names, if there is one.
        quick: Read no data: compare the SHA-256 in the index with what the Hub, pointers of Git LFS or
            huggingface_hub's folders keep. The result `is_whole` if it is the same for all files.
        progress: Called with the bytes checked so far and the total, by one thread at a time. If it raises, the
            work stops.
        key: The key of an encrypted checkpoint; see `open`. With it, every block is authenticated, and the tensors
            are compared with their own digests; without it, the encrypted bytes are compared with theirs.
        executor: What reads and sums the files in place of threads of this process: any `concurrent.futures.Executor`
            whose tasks can be pickled, such as a `ProcessPoolExecutor` or dask's `client.get_executor()`. All
            workers must see the same files.

    Returns:
        What was checked, and a finding for everything that is wrong.

    Raises:
        SourceMissingError: If there is no checkpoint.
        FormatError: If a file does not begin like a checkpoint of any kind.
        LimitError: If a header, index or pickle exceeds a bound.
        TensorNotFoundError: If a name is not in the checkpoint.
        SelectionError: If `sample` is not in (0, 1], or `quick` comes with `names` or `sample`.
        UnsupportedError: If a directory holds several checkpoints, digests are of a later version, or `names`,
            `sample` or `quick` is given with `trust`.
        EncryptedError: If it is encrypted with another key than `key`.
        TrustError: If the policy or key is in the directory of the checkpoint.
        MissingDependencyError: If `cryptography` is not installed, with `trust` or `key`.
        TransportError: If the index or a single file cannot be read, or the executor lost a worker.

    Examples:
        >>> tensorkeep.save({"weight": numpy.eye(2)}, "w.safetensors")
        >>> tensorkeep.verify("w.safetensors").is_whole
        True
    """
    if sample is not None and not (isinstance(sample, int | float) and 0 < sample <= 1):
        raise SelectionError(
            "`sample` must be a fraction of the bytes", expected="more than 0, at most 1", found=repr(sample)
        )
    policy = policy_for(trust, path)
    if policy is not None and (quick or names is not None or sample is not None):
        hint = "Leave out `names`, `sample` and `quick`, or `trust`"
        raise UnsupportedError("signatures cover whole files", hint=hint)
    if quick and not (names is None and sample is None):
        raise SelectionError("`quick` compares whole files", expected="no `names` and no `sample`")
    is_all = names is None and sample is None and variant is None
    with listing_cache(os.fspath(path)) as given, ExitStack() as opened:
        try:
            place = Place(given, variant=variant, trusts_names=False)
            found = find_kind(place, with_manifests=is_all)
            keys = Keys.given(key)
            options = OpenOptions(
                variant=variant,
                dangerous="record",
                engine=engine,
                keys=keys,
                as_stored=keys is None and names is None,
            )
            refused: Checks | None = None if policy is None else imported(_REFUSED)(policy, place)
            checks = found.checks(options, names, opened) if refused is None else refused
            if checks.n_unprotected and sample is None and not quick:
                checks = with_kept_sum(checks, found.files())
        except (FormatError, IntegrityError) as error:
            checks = Checks(findings=[damage_of(error)])
        if policy is not None:
            checks = imported(_TRUSTED)(checks, policy, given, opened, is_decrypted=Keys.given(key) is not None)
        if quick:
            return answer_by_kept_sums(checks, str(given))
        return run_checks(checks, str(given), sample=sample, seed=seed, progress=progress, executor=executor)
