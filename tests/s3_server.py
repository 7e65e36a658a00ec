"""An S3-compatible server on this machine, in a process of its own."""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.commands import environment

ACCOUNT = {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def s3_endpoint(bucket: str) -> Iterator[str]:
    """The address of a server with one bucket; processes that are started inside have an account there."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    before = {name: os.environ.get(name) for name in ACCOUNT}
    try:
        assert server.stdout is not None
        endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")).read()
        os.environ |= ACCOUNT
        yield endpoint
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
        server.kill()
        server.communicate()


def put_objects(endpoint: str, objects: Mapping[str, bytes], bucket: str = "bucket") -> None:
    """Write objects by their keys."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(bucket, endpoint=endpoint, region="us-east-1", client_options={"allow_http": True})
    for key, content in objects.items():
        obstore.put(store, key, content)
