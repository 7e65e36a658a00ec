"""A server without a web part, as a process that tests kill: `python server.py STORAGE CPUS`."""

import sys
import threading
from pathlib import Path

from tests.service.running import COMMAND
from tuner.service.devices import devices_here
from tuner.service.executors import LocalProcesses
from tuner.service.service import Service

if __name__ == "__main__":
    devices = devices_here(cpus=int(sys.argv[2]), gpus=0)
    with Service(Path(sys.argv[1]), devices=devices, executor=LocalProcesses(COMMAND)):
        print("ready", flush=True)
        threading.Event().wait()
