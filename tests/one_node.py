"""A node with a CPU that joins a Ray cluster on loopback until SIGTERM, as `ray start` takes 127.0.0.1 for elsewhere.

python tests/one_node.py CLUSTER ADDRESS    prints its id; ADDRESS is the node's own, such as 127.0.0.3
"""

import signal
import sys

from ray._private.node import Node
from ray._private.parameter import RayParams

if __name__ == "__main__":
    told = RayParams(
        gcs_address=sys.argv[1],
        node_ip_address=sys.argv[2],
        num_cpus=1,
        num_gpus=0,
        object_store_memory=80_000_000,
        include_log_monitor=False,
        dashboard_agent_listen_port=None,
    )
    node = Node(told, head=False, shutdown_at_exit=True, spawn_reaper=True)
    print(node.unique_id, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    node.kill_all_processes(check_alive=False, allow_graceful=True)
