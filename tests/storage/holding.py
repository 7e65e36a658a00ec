"""A process that takes a run's lease and says what becomes of it, a line each: `python -m tests.storage.holding URI`."""

import contextlib
import sys
import threading
import time

from tuner.errors import RunFolderError
from tuner.storage.lease import Pace, held
from tuner.storage.locations import open_folder


def say(line: str) -> None:
    print(line, flush=True)


def main(uri: str, take_over: str, renew: str, expire: str) -> None:
    """Try at the time that the first line of its input says, and hold it until the input ends or the lease is lost."""
    released = threading.Event()
    folder, pace = open_folder(uri), Pace(float(renew), float(expire))
    say("ready")
    time.sleep(max(0.0, float(sys.stdin.readline()) - time.time()))
    threading.Thread(target=lambda: (sys.stdin.read(), released.set()), daemon=True).start()
    try:
        with held(folder, take_over=take_over == "yes", pace=pace) as lease:
            say("held")
            while not released.wait(0.05):
                if lease.lost:
                    break
        say("lost" if lease.lost else "released")
    except RunFolderError as error:
        say(f"refused: {error}")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
