"""A program that stands in for an agent of Ray's raylet, and becomes the agent when it is first asked for.

    python -I -S agent_stand_in.py PORT COMMAND …

A raylet ends when one of its two agents ends, so it needs both. A search on one machine needs neither: one serves
metrics that nobody reads, the other prepares a `runtime_env`, for which only a training function that uses Ray itself
may ask. Each would take half a CPU-second and 70 MB. This program waits in a few megabytes. At the first connection to
PORT it releases the port and becomes COMMAND; the raylet asks again until COMMAND answers (Ray 2.60,
`runtime_env_agent_client.cc`: failed connections are repeated for 30 s). With PORT 0 nobody connects.
"""

import os
import select
import socket
import sys

ADDRESS = "127.0.0.1"
LOOK_SECONDS = 1.0  # between two checks whether the raylet still runs


def main(port: int, command: list[str]) -> None:
    """Wait until the agent is asked for, or the raylet has ended."""
    raylet = os.getppid()
    asked = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if port:
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the driver holds it, not listening
        asked.bind((ADDRESS, port))
        asked.listen()
    while os.getppid() == raylet:
        if select.select([asked] if port else [], [], [], LOOK_SECONDS)[0]:
            asked.close()
            os.execvp(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
