"""Models of the Hub without the Hub: what was fetched before, and what is in the Hub's own cache."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.errors import SourceMissingError, TensorkeepError

_model_at = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/]+))?/?").fullmatch


def is_offline(url: str, options: dict[str, Any]) -> bool:
    """Whether a program asked to use only what is on this machine; takes the option for that out of `options`."""
    is_told = bool(options.pop("local_files_only", False))
    return is_told or (url.startswith("hf://") and constants.HF_HUB_OFFLINE)


def found_here(url: str, fetched: str, cache: str | os.PathLike[str] | None, options: dict[str, Any]) -> str:
    """Return the local directory of a model: where it was fetched to, or its snapshot in the Hub's cache."""
    failed: TensorkeepError | None = None
    for folder in _candidates(url, fetched, cache):
        try:
            open_checkpoint(
                os.path.join(folder, options.get("subfolder") or ""), variant=options.get("variant")
            ).close()
        except SourceMissingError as error:
            failed = failed or (error if os.listdir(folder) else None)
        except TensorkeepError as error:
            failed = failed or error
        else:
            return folder
    raise failed or SourceMissingError(
        "the model is not on this machine, and the program may not use the network",
        path=url,
        expected="a model that was fetched before, or one in the Hub's cache",
        hint="Load it once without HF_HUB_OFFLINE and local_files_only, or pass a local directory",
    )


def _candidates(url: str, fetched: str, cache: str | os.PathLike[str] | None) -> Iterator[str]:
    if os.path.isdir(fetched):
        yield fetched
    model = _model_at(url)
    if model is None:
        return
    revision = None if model["revision"] is None else unquote(model["revision"])
    kept = None if cache is None else os.fspath(cache)
    try:
        yield snapshot_download(model["repo"], revision=revision, cache_dir=kept, local_files_only=True)
    except (LocalEntryNotFoundError, HfHubHTTPError, ValueError):  # it is not there, or its name is impossible
        return
