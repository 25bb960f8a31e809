"""Where are the bytes, if not here? Objects of web servers, S3, Google Cloud Storage, Azure, the Hub and others.

- `_urls`: URLs, told from paths and shown without secrets.
- `_base`: an object in a store, asked for with single requests.
- `_sending`: bytes on their way to a library that cannot be stopped otherwise.
- `_requests`: which ranges to ask for.
- `_runs`: runs of equal length as requests of several ranges.
- `_retries`: requests that are made again.
- `_manner`: how objects are read.
- `_copying`: a range that comes whole, by as many requests as it takes.
- `_source`: an object as a source of bytes, always the same version.
- `_multipart`: several ranges in one answer.
- `_pace`: how slowly an answer may come.
- `_connections`, `_http`: web servers, asked by ourselves.
- `_obstore`, `_fsspec`: all other stores, asked by libraries.
- `_hub`: the Hugging Face Hub, asked as the web server that it is.
- `_stores`: the store that a URL leads to.
- `_fingerprint`: what tells a place from all others.
- `_block_files`: blocks of bytes on the disk, as many as a bound allows.
- `_cache`: objects of which blocks are kept there.
- `_path`: a URL that knows its store.
"""

from tensorkeep.transport.remote._base import Body, Version
from tensorkeep.transport.remote._path import RemotePath, remote
from tensorkeep.transport.remote._requests import plan_requests
from tensorkeep.transport.remote._source import RemoteSource
from tensorkeep.transport.remote._urls import is_url

__all__ = [
    "Body",
    "RemotePath",
    "RemoteSource",
    "Version",
    "is_url",
    "plan_requests",
    "remote",
]
