import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.train.pretend import GPU, HOST, pretending


def test_tensors_lie_where_they_were_put_and_so_does_what_is_made_of_them() -> None:
    with pretending():
        host, device = torch.ones(2, 3), torch.ones(2, 3, device="cuda")
        assert (host.device, device.device, host.to("cuda").device, device.cpu().device) == (HOST, GPU, GPU, HOST)
        assert (device + 1).device == device.unbind(0)[1].device == torch.zeros_like(device).device == GPU
        assert device.is_cuda
        assert not host.is_cuda
        assert host.device == HOST  # its copy lies elsewhere
    assert device.device == HOST


def test_a_network_is_moved_trained_and_copied_there() -> None:
    with pretending() as gpu:
        module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).to("cuda")
        module(torch.ones(4, 1, 5, 5, device=GPU)).sum().backward()
        copied = copy.deepcopy(module)
        tensors = [*module.parameters(), *module.buffers(), *copied.parameters(), *copied.buffers()]
        assert {tensor.device for tensor in tensors} == {GPU}
        assert {value.grad.device for value in module.parameters() if value.grad is not None} == {GPU}
        assert not gpu.mixed


@pytest.mark.parametrize(
    "wait",
    [
        float,
        bool,
        Tensor.item,
        Tensor.tolist,
        Tensor.cpu,
        Tensor.nonzero,
        lambda one: one[one > 0],
        lambda one: one.to("cpu"),
        lambda one: torch.zeros(1).copy_(one),
        lambda one: torch.where(one > 0),
        lambda one: torch.equal(one, one),
        lambda one: torch.cuda.synchronize(),
    ],
)
def test_what_makes_the_host_wait_is_counted(wait: Callable[[Tensor], Any]) -> None:
    with pretending() as gpu:
        wait(torch.ones(1, device="cuda"))
        assert gpu.syncs.total() == 1
        gpu.clear()
        wait(torch.ones(1))
        assert gpu.syncs.total() == (wait(torch.ones(1)) is None)  # only `synchronize` waits without a tensor


def test_copies_from_the_host_are_counted_apart_from_those_that_block() -> None:
    with pretending() as gpu:
        one = torch.ones(3).to("cuda", non_blocking=True)
        assert (gpu.copies, gpu.waits.total()) == ({"copy at no line of tuner": 1}, 0)
        first = torch.tensor([0], device="cuda")
        one.copy_(torch.ones(3))
        one[torch.tensor([0])]
        assert gpu.copies["blocking copy at no line of tuner"] == gpu.waits.total() == 3
        one[first] = 2.0
        torch.zeros(3, device="cuda")
        assert gpu.waits.total() == 3


def test_tensors_of_two_devices_dont_mix_but_for_the_hosts_single_values() -> None:
    with pretending() as gpu:
        device = torch.ones(3, device="cuda")
        device * torch.tensor(2.0)
        assert not gpu.mixed
        torch.ones(3) * device
        torch._foreach_add([device], [torch.ones(3)])
        assert gpu.mixed.total() == 2


KINDS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": lambda parameters, **options: torch.optim.SGD(parameters, momentum=0.9, **options),
}


@pytest.mark.parametrize("kind", KINDS)
def test_fused_optimizers_refuse_state_of_other_strides_and_devices(kind: str) -> None:
    with pretending():
        weight = nn.Parameter(torch.ones(4, 3, 2, 2, device="cuda").to(memory_format=torch.channels_last))
        flat = nn.Parameter(torch.ones(4, 3, 1, 1, device="cuda").to(memory_format=torch.channels_last))
        optimizer = KINDS[kind]([weight, flat], lr=0.1, fused=True)
        for parameter in (weight, flat):
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        moments = [name for name, value in optimizer.state[weight].items() if value.ndim]
        optimizer.state[flat][moments[0]] = optimizer.state[flat][moments[0]].contiguous()  # of 1 x 1 kernels: the same
        optimizer.step()
        optimizer.state[weight][moments[0]] = optimizer.state[weight][moments[0]].contiguous()
        with pytest.raises(RuntimeError, match="must have the same layout"):
            optimizer.step()
        optimizer.state[weight][moments[0]] = torch.zeros_like(weight).cpu()
        with pytest.raises(RuntimeError, match="must have the same dtype and device"):
            optimizer.step()


def test_adams_counters_of_steps_must_lie_on_the_gpu() -> None:
    with pretending():
        weight = nn.Parameter(torch.ones(4, device="cuda"))
        weight.grad = torch.ones_like(weight)
        optimizer = torch.optim.Adam([weight], fused=True)
        optimizer.step()
        optimizer.state[weight]["step"] = torch.tensor(1.0)
        with pytest.raises(RuntimeError, match="counters of steps"):
            optimizer.step()


@pytest.mark.parametrize(("capability", "native"), [((7, 5), False), ((8, 0), True)])
def test_the_gpu_has_the_memory_and_the_capability_that_it_is_given(capability: tuple[int, int], native: bool) -> None:
    with pretending(free_bytes=5, total_bytes=9, capability=capability):
        assert torch.cuda.mem_get_info() == (5, 9)
        assert torch.cuda.is_bf16_supported(including_emulation=False) is native


def test_afterwards_all_is_as_it_was() -> None:
    before = torch.cuda.is_available, torch.autocast.__init__, nn.Parameter.__new__
    with pretending():
        assert torch.cuda.is_available()
    assert (torch.cuda.is_available, torch.autocast.__init__, nn.Parameter.__new__) == before
    assert torch.ones(1).to("cpu").device == HOST
