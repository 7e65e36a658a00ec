"""A Ray cluster of nodes with a CPU each on this machine, for as long as its standard input is open.

python -m tests.two_nodes [COUNT]    prints the address; each line of its input adds a node
"""

import os
import sys

from tuner.driver.cluster import _ENVIRONMENT, LOOPBACK

if __name__ == "__main__":
    os.environ.update(_ENVIRONMENT | os.environ)
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "num_gpus": 0, "object_store_memory": 80_000_000, "node_ip_address": LOOPBACK}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    for _ in range(int(sys.argv[1]) - 1 if len(sys.argv) > 1 else 1):
        cluster.add_node(**node)
    print(cluster.address, flush=True)
    for _ in sys.stdin:
        cluster.add_node(**node)
    cluster.shutdown()
