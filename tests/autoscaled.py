"""A Ray cluster on this machine whose autoscaler starts nodes of a CPU each, for as long as its standard input is open.

python -m tests.autoscaled MOST v1|v2    prints the address; the head itself runs no trials
"""

import json
import os
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path

from ray._private import parameter
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID, FakeMultiNodeProvider

from tuner.driver.cluster import _ENVIRONMENT, LOOPBACK

IDLE_MINUTES = 0.05
_MEMORY = 80_000_000


class LoopbackNodes(FakeMultiNodeProvider):  # type: ignore[misc]
    """Starts nodes that are reached by loopback alone."""

    def create_node_with_resources_and_labels(self, *arguments: object) -> None:
        """A node, as Ray's own autoscaler asks for it."""
        parameter.RayParams = partial(RayParams, node_ip_address=LOOPBACK)
        super().create_node_with_resources_and_labels(*arguments)


def configuration(most: int, address: str) -> dict[str, object]:
    """What Ray's autoscaler reads: up to `most` nodes, none while nothing is to be done."""
    lists = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
    return {
        "cluster_name": "autoscaled",
        "max_workers": most,
        "provider": {
            "type": "external",
            "module": f"tests.autoscaled.{LoopbackNodes.__name__}",
            "gcs_address": address,
            "use_node_id_as_ip": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "launch_multiple": True,
            "head_node_id": FAKE_HEAD_NODE_ID,
        },
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {
                "resources": {"CPU": 1, "object_store_memory": _MEMORY},
                "node_config": {},
                "min_workers": 0,
                "max_workers": most,
            },
        },
        "head_node_type": "ray.head.default",
        "auth": {},
        "upscaling_speed": 10.0,
        "idle_timeout_minutes": IDLE_MINUTES,
        "docker": {},
        **{f"{name}_commands": [] for name in lists},
        **{"file_mounts": {}, "cluster_synced_files": [], "file_mounts_sync_continuously": False},
        **{"rsync_exclude": [], "rsync_filter": []},
    }


if __name__ == "__main__":
    os.environ.update(_ENVIRONMENT | os.environ)
    os.environ |= {"AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1", "PYTHONPATH": str(Path.cwd())}
    if sys.argv[2] == "v2":
        os.environ |= {"RAY_enable_autoscaler_v2": "1", "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "autoscaler.json"
        with socket.create_server((LOOPBACK, 0)) as free:
            port = free.getsockname()[1]
        file.write_text(json.dumps(configuration(int(sys.argv[1]), f"{LOOPBACK}:{port}")))
        head = Node(
            RayParams(
                node_ip_address=LOOPBACK,
                gcs_server_port=port,
                num_cpus=0,
                num_gpus=0,
                object_store_memory=_MEMORY,
                include_dashboard=False,
                autoscaling_config=str(file),
                dashboard_agent_listen_port=None,
                env_vars={
                    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
                    "RAY_NODE_TYPE_NAME": "ray.head.default",
                },
            ),
            head=True,
            shutdown_at_exit=True,
            spawn_reaper=True,
        )
        print(head.gcs_address, flush=True)
        sys.stdin.read()
        head.kill_all_processes(check_alive=False, allow_graceful=True)
