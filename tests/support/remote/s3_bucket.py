"""A bucket on a real S3 server in this process, empty at first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self
from urllib.request import urlopen

import boto3
from moto.server import ThreadedMotoServer

from tensorkeep import remote

__all__ = ["KEYS", "Bucket"]

KEYS = {"access_key_id": "me", "secret_access_key": "so-secret", "region": "us-east-1"}


class Bucket:
    def __init__(self, url: str) -> None:
        self.url = url
        self.client = boto3.client(
            "s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id="me", aws_secret_access_key="so-secret"
        )
        self.client.create_bucket(Bucket="models")

    @classmethod
    @contextmanager
    def served(cls) -> Iterator[Self]:
        server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        try:
            url = "http://{}:{}".format(*server.get_host_and_port())
            urlopen(f"{url}/moto-api/reset", data=b"").close()  # servers of one process share all they have
            yield cls(url)
        finally:
            server.stop()

    def at(self, path: str, **options: Any) -> Any:
        return self.remote(f"s3://models/{path}", **options)

    def remote(self, *url: str, **options: Any) -> Any:
        return remote(*url, **{"endpoint": self.url, "pause_s": 0.001} | KEYS | options)

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which plain URLs lead to this server."""
        keys = {f"AWS_{name.upper()}": value for name, value in KEYS.items()}
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true"} | keys

    def names(self, path: str) -> set[str]:
        found = self.client.list_objects_v2(Bucket="models", Prefix=f"{path}/").get("Contents", [])
        return {each["Key"].removeprefix(f"{path}/") for each in found}

    def unfinished(self) -> list[Any]:
        return self.client.list_multipart_uploads(Bucket="models").get("Uploads") or []
