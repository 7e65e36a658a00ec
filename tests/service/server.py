"""A server as a process that tests kill: `python server.py STORAGE CPUS [PORT]`; with a port it has its web part."""

import sys
import threading
from pathlib import Path

from tests.service.running import COMMAND
from tuner.service.devices import devices_here
from tuner.service.executors import LocalProcesses
from tuner.service.service import Service
from tuner.service.web.server import serve
from tuner.service.web.settings import WebSettings

if __name__ == "__main__":
    devices = devices_here(cpus=int(sys.argv[2]), gpus=0)
    with Service(Path(sys.argv[1]), devices=devices, executor=LocalProcesses(COMMAND)) as service:
        if len(sys.argv) > 3:
            serve(service, WebSettings(port=int(sys.argv[3])), say=lambda _: print("ready", flush=True))
        else:
            print("ready", flush=True)
            threading.Event().wait()
