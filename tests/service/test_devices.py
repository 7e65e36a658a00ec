import os

from tests.service.test_scheduling import running
from tuner.service.devices import DeviceWatch, devices_here
from tuner.service.model import Device


def test_the_devices_are_those_that_this_process_may_use() -> None:
    found = [device.index for device in devices_here() if device.kind == "cpu"]
    assert found
    assert set(found) <= os.sched_getaffinity(0)
    assert [device.index for device in devices_here(cpus=1, gpus=0)] == found[:1]
    assert devices_here(cpus=0, gpus=0) == ()


def test_each_device_is_shown_with_its_study_trial_and_use() -> None:
    devices = (Device("gpu", 0, "GPU-a"), Device("gpu", 1, "MIG-b"), *devices_here(cpus=1, gpus=0))
    watch = DeviceWatch()
    watch.uses(devices, [], {})
    uses = watch.uses(devices, [running(7, 0)], {"cuda:0": "00003", "MIG-b": "00004", "2 CPUs": "00005"})
    assert [(use.study, use.user, use.trial) for use in uses] == [
        (7, "anne", "00003"),
        (None, None, "00004"),
        (None, None, None),
    ]
    assert all(use.busy is None or 0 <= use.busy <= 1 for use in uses)
