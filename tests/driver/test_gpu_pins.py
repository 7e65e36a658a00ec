"""GPUs that are kept from a search, with a real Ray that counts GPUs and needs none."""

import time
from collections.abc import Iterator

import pytest
import ray

from tuner.driver.gpu_pins import GpuPins

pytestmark = pytest.mark.ray
NAMES = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]


@pytest.fixture(scope="module", autouse=True)
def _four_gpus() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CUDA_VISIBLE_DEVICES", ",".join(NAMES))
        ray.init(num_cpus=4, num_gpus=4, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


@ray.remote(num_gpus=1, num_cpus=0)
class Trial:
    def gpu(self) -> str:
        return str(ray.get_runtime_context().get_accelerator_ids()["GPU"][0])


def waited_for(pins: GpuPins, devices: list[str], count: int) -> list[str]:
    until = time.monotonic() + 120
    while not (found := pins.unused(devices, count)) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def test_trials_run_on_lent_gpus_alone_and_a_gpu_is_given_back_once_its_trial_has_ended() -> None:
    pins = GpuPins(["GPU-b", "GPU-d"])
    trials = [Trial.remote() for _ in range(2)]
    gpus = [ray.get(trial.gpu.remote(), timeout=120) for trial in trials]
    assert sorted(gpus) == ["GPU-b", "GPU-d"]
    third = Trial.remote()
    assert ray.wait([third.gpu.remote()], timeout=3)[0] == []  # the other two are no GPUs of this search
    ray.kill(third)
    assert pins.unused(gpus, 1) == []
    time.sleep(2)
    assert pins.unused(gpus, 1) == []  # both have a trial
    ray.kill(trials[1])
    assert waited_for(pins, gpus, 1) == [gpus[1]]
    pins.use([gpus[0], "GPU-a"])
    assert ray.get(Trial.remote().gpu.remote(), timeout=120) == "GPU-a"


def test_an_order_to_give_back_that_is_withdrawn_leaves_the_gpu_to_trials() -> None:
    pins = GpuPins(NAMES)
    trials = [Trial.remote() for _ in range(4)]
    gpus = ray.get([trial.gpu.remote() for trial in trials], timeout=120)
    assert sorted(gpus) == NAMES
    pins.unused(NAMES, 2)
    pins.unused(NAMES, 0)
    ray.kill(trials[0])
    assert ray.get(Trial.remote().gpu.remote(), timeout=120) == gpus[0]
