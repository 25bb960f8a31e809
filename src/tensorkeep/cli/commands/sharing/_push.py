"""`tensorkeep push`: publish a checkpoint on the Hub or in a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import tensorkeep
from tensorkeep.cli.inputs import AsJson, Force, SplitLarge, Target, Variant, size_of
from tensorkeep.cli.reports import Published
from tensorkeep.cli.terminal import Writing, show_result

if TYPE_CHECKING:
    from tensorkeep.publishing import Push


def push(
    path: Target,
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="hf://org/model, hf://org/model@branch/folder, or a directory in a bucket: s3, gs, az …",
            show_default=False,
        ),
    ],
    *,
    max_shard_size: Annotated[
        str | None,
        typer.Option(
            "--max-shard-size",
            metavar="SIZE",
            help="Send the tensors in new shards of at most this size, such as 5GB.",
        ),
    ] = None,
    split_large: SplitLarge = False,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="GLOB", help="Also send these files of the directory, such as '*.py'."),
    ] = None,
    message: Annotated[
        str | None, typer.Option("--message", "-m", metavar="TEXT", help="The commit message.")
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the repository or branch if it is missing.")
    ] = False,
    private: Annotated[
        bool | None,
        typer.Option("--private/--public", help="Who can see a new repository.", show_default="as its owner set"),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Check all bytes against their digests first.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be sent and removed.")] = False,
    variant: Variant = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Publish a checkpoint on the Hub or in a bucket.

    On the Hub, a single commit adds the new files and removes those that only the old index names. In a bucket, a
    single write replaces the index. Files that are there already are not sent again, and others are left alone; a
    repository keeps its own README.md. Configuration, tokenizer and license are sent with the tensors, but code only
    with --include.

    If this is stopped, readers still have the old checkpoint, and the same command sends the rest. If somebody else
    changes the branch meanwhile, nothing is published. The token comes from HF_TOKEN or `hf auth login`.
    """
    publish = tensorkeep.push  # import everything before the clock starts

    def attempt(*, overwrite: bool, progress: tensorkeep.checkpoint.Progress | None) -> Push:
        return publish(
            path,
            url,
            max_shard_size=None if max_shard_size is None else size_of(max_shard_size),
            split_large=split_large,
            variant=variant,
            include=include or (),
            message=message,
            create=create,
            private=private,
            verify=verify,
            overwrite=overwrite,
            dry_run=dry_run,
            progress=progress,
        )

    writing = Writing(url, force=force, asks=not as_json, advice="; the same command sends the rest")
    pushed = writing.run_shown("sending", attempt)
    show_result(Published(pushed, writing.seconds), as_json=as_json)
