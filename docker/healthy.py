"""Ends with 0 where an address of this container answers 200: the health check of its images.

Without an argument it asks `tuner serve`, by HTTP or HTTPS; a node of a Ray cluster gives the address of its agent.
"""

import ssl
import sys
import urllib.request

# without TLS first: a server that has it tells of no connection that isn't one
SERVER = ("http://127.0.0.1:8765/healthz", "https://127.0.0.1:8765/healthz")
# it asks its own machine whether it lives, by an address that no certificate names
UNVERIFIED = ssl._create_unverified_context()


def answers(address: str) -> bool:
    """Whether it says that it lives."""
    try:
        with urllib.request.urlopen(address, timeout=4, context=UNVERIFIED) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(not any(answers(address) for address in sys.argv[1:] or SERVER))
