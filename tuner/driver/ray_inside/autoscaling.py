"""Whether Ray's autoscaler would start nodes for the trials of a search."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import ray

from tuner.driver.ray_inside import names
from tuner.study.resources import Resources

STATUS_SECONDS = 15.0  # the longest that an autoscaler takes to report its status, or to read a request
LOOK_SECONDS = 0.5
OF_A_LABEL = 0.001  # each node has 1 of the resource that names its kind of GPU
_FIXED = "node_"  # with the node's id, Ray's name for the type of a node if no autoscaler runs


def would_grow(resources: Resources, present: int) -> bool:
    """Whether an autoscaler would start nodes for one trial more than the `present` ones that the nodes can hold.

    Version 1 of Ray's autoscaler names its types of nodes. Version 2 doesn't, and a mere monitor on a fixed cluster
    looks the same; so a request is made, and withdrawn once it is called infeasible or a node is on its way.
    """
    if not names.present("autoscaler"):
        return False
    from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
    from ray.experimental import internal_kv

    until = time.monotonic() + STATUS_SECONDS
    while time.monotonic() < until:
        told = internal_kv._internal_kv_get(DEBUG_AUTOSCALING_STATUS)
        if told is not None:
            return _has_types(json.loads(told))
        if _reply().HasField("autoscaling_state"):
            return _answers(resources, present, until)
        time.sleep(LOOK_SECONDS)
    return False


def bundles_of(resources: Resources) -> tuple[list[dict[str, float]], str]:
    """What a trial requests from Ray, with the strategy: one bundle, or one per process for a spread trial."""
    count = int(resources.devices) if resources.placement == "spread" else 1
    bundle = {"CPU": resources.cpu_count / count}
    bundle |= {"GPU": resources.gpu_count / count} if resources.gpu_count else {}
    bundle |= {resources.node_label: OF_A_LABEL} if resources.node_label else {}
    return [bundle] * count, "SPREAD" if count > 1 else "PACK"


def waiting_notice(resources: Resources, wanted: int, present: int) -> str:
    """The notice if an autoscaler has to start nodes for `wanted` trials, and there is room for `present` now."""
    devices = [f"{resources.cpu_count:g} CPU{'' if resources.cpu_count == 1 else 's'}"]
    if resources.gpu_count:
        devices.append(f"{resources.gpu_count:g} GPU{'' if resources.gpu_count == 1 else 's'}")
    return (
        f"the nodes have room for {present} of the {wanted} trials at once, so Ray's autoscaler is asked for more nodes"
        f", with {' and '.join(devices)} for each trial; `ray status` shows what it does"
    )


def _answers(resources: Resources, present: int, until: float) -> bool:
    """Whether autoscaler 2 starts a node for a request that the nodes can't hold."""
    bundles, strategy = bundles_of(resources)
    group = ray.util.placement_group(bundles * (present + 1), strategy="PACK" if present else strategy)
    try:
        asked = _reply().cluster_resource_state.cluster_resource_state_version
        while time.monotonic() < until:
            state = _reply().autoscaling_state
            if state.last_seen_cluster_resource_state_version > asked:
                if any(group.id.hex() in request.details for request in state.infeasible_gang_resource_requests):
                    return False
                if state.pending_instance_requests or state.pending_instances or group.wait(0):
                    return True
            time.sleep(LOOK_SECONDS)
        return False
    finally:
        ray.util.remove_placement_group(group)


def _reply() -> Any:
    from ray._private.worker import global_worker
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    answer = global_worker.node.get_gcs_client().get_cluster_status(timeout_s=STATUS_SECONDS)
    return GetClusterStatusReply.FromString(answer)


def _has_types(status: Mapping[str, Any]) -> bool:
    """Whether the status is of an autoscaler that can start types of nodes, and not of one that only watches."""
    types = (status.get("autoscaler_report") or {}).get("node_type_mapping") or {}
    return any(kind != f"{_FIXED}{node}" for node, kind in types.items())
