"""Drain a node, as a cloud's notice does: `python -m tests.drain ADDRESS NODE`; `ray drain-node` refuses loopback."""

import sys
import time

if __name__ == "__main__":
    from ray._raylet import GcsClient
    from ray.core.generated import autoscaler_pb2

    reason = autoscaler_pb2.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    until = int(time.time() * 1000) + 30_000
    accepted, why = GcsClient(address=sys.argv[1]).drain_node(sys.argv[2], reason, "", until)
    sys.exit(0 if accepted else why)
