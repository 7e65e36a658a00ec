import torch
from torch import Tensor, nn

from tuner.train.memory.batch_statistics import BatchNorms


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4))


def statistics(module: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in module.named_buffers()}


def step(module: nn.Module) -> None:
    module(torch.rand(6, 3))


def same(module: nn.Module, before: dict[str, Tensor]) -> list[bool]:
    return [torch.equal(buffer, before[name]) for name, buffer in module.named_buffers()]


def test_statistics_are_put_back_exactly_after_any_number_of_steps() -> None:
    module = network()
    norms = BatchNorms(module)
    for _ in range(3):
        norms.keep()
        before = statistics(module)
        step(module)
        assert not any(same(module, before))
        norms.put_back()
        assert all(same(module, before))
        step(module)


def test_what_begins_to_learn_is_kept_too_and_what_doesnt_is_left_alone() -> None:
    module = network()
    norms = BatchNorms(module)
    module[1].eval()
    norms.keep()
    module.train()
    norms.keep()
    before = statistics(module)
    step(module)
    norms.put_back()
    assert all(same(module, before))
    module[1].eval()
    norms.keep()
    with torch.no_grad():
        module[1].running_mean.fill_(7.0)
    norms.put_back()
    assert module[1].running_mean.tolist() == [7.0] * 4


def test_a_network_without_batch_norms_has_nothing_to_keep() -> None:
    norms = BatchNorms(nn.Linear(2, 2))
    norms.keep()
    norms.put_back()
    assert norms.learning == []
