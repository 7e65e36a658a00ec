"""A server as a process that tests kill: `python server.py STORAGE CPUS [PORT | URL]`.

With a port it has its web part; with the address of a cluster's dashboard its drivers are jobs there.
"""

import os
import sys
import threading
from pathlib import Path

from tests.service.running import COMMAND
from tuner.service.devices import devices_here, devices_of_cluster
from tuner.service.executors import LocalProcesses, RayJobs
from tuner.service.executors.jobs_api import JobsApi
from tuner.service.service import Service
from tuner.service.web.server import serve
from tuner.service.web.settings import WebSettings

if __name__ == "__main__":
    count, where = int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
    jobs = where.startswith("http")
    devices = devices_of_cluster(count, 0) if jobs else devices_here(cpus=count, gpus=0)
    executor = RayJobs(JobsApi(where, os.environ["RAY_AUTH_TOKEN"])) if jobs else LocalProcesses(COMMAND)
    with Service(Path(sys.argv[1]), devices=devices, executor=executor) as service:
        if where and not jobs:
            serve(service, WebSettings(port=int(where)), say=lambda _: print("ready", flush=True))
        else:
            print("ready", flush=True)
            threading.Event().wait()
