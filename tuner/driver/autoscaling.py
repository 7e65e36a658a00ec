"""Whether Ray's autoscaler adds nodes to the connected cluster, and how many trials a search may ask it for."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
from ray._private.worker import global_worker
from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply
from ray.experimental import internal_kv

from tuner.resources import Resources

STATUS_SECONDS = 10.0  # after its start an autoscaler takes some before it first tells of itself
LOOK_SECONDS = 0.5
_FIXED = "node_"  # and the node's id: what Ray calls the type of a node where no autoscaler runs


def grows() -> bool:
    """Whether the connected cluster has an autoscaler. A cluster that has only just started may not tell yet."""
    return bool(_status())


def will_grow() -> bool:
    """The same, and waits for a cluster that has only just started."""
    until = time.monotonic() + STATUS_SECONDS
    while (status := _status()) is None and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
    return bool(status)


def waiting_notice(resources: Resources, wanted: int, present: int) -> str:
    """What the user should know where an autoscaler has to start nodes for `wanted` trials, and `present` have room."""
    devices = [f"{resources.cpu_count:g} CPU{'' if resources.cpu_count == 1 else 's'}"]
    if resources.gpu_count:
        devices.append(f"{resources.gpu_count:g} GPU{'' if resources.gpu_count == 1 else 's'}")
    return (
        f"the nodes have room for {present} of the {wanted} trials at once, so Ray's autoscaler is asked for more nodes"
        f", with {' and '.join(devices)} for each trial; `ray status` shows what it does"
    )


def _status() -> bool | None:
    """Whether there is an autoscaler; None where nothing is known yet."""
    told = internal_kv._internal_kv_get(DEBUG_AUTOSCALING_STATUS)
    if told is not None:
        return _has_types(json.loads(told))
    reply = GetClusterStatusReply.FromString(global_worker.gcs_client.get_cluster_status())
    return True if reply.HasField("autoscaling_state") else None  # of autoscaler v2


def _has_types(status: Mapping[str, Any]) -> bool:
    """Whether the status is of an autoscaler that has types of nodes to choose from, and not of one that only looks."""
    types = (status.get("autoscaler_report") or {}).get("node_type_mapping") or {}
    return any(kind != f"{_FIXED}{node}" for node, kind in types.items())
