"""Where a network can be split into blocks, and how blocks become stages."""

from contextlib import nullcontext
from itertools import combinations
from typing import Any, ClassVar

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from tuner.errors import StudyError
from tuner.train.parallel.pipeline.balance import ROUNDS, balanced, measure
from tuner.train.parallel.pipeline.chain import find_chain
from tuner.train.parallel.pipeline.pipeline import equal_runs, keep_only, split_at


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("resnet18", ["conv1", "bn1", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer3.0", "layer3.1"]),
        ("resnet50", ["conv1", "bn1", "layer1.0", "layer1.1", "layer1.2", "layer2.0"]),
        ("mobilenet_v3_small", ["features.0", "features.1"]),
        ("densenet121", ["features.conv0", "features.norm0", "features.denseblock1"]),
        ("vit_b_16", ["conv_proj"]),
    ],
)
def test_torchvisions_models_are_chains_of_their_blocks(name: str, blocks: list[str]) -> None:
    torch.manual_seed(0)
    module = torchvision.models.get_model(name, weights=None)
    chain = find_chain(module, name)
    assert list(chain.names[: len(blocks)]) == blocks
    assert len(chain.blocks) > 9  # a transformer's layers too, which lie in one encoder
    state = module.state_dict()
    every = chain.tensors(0, len(chain.blocks))
    assert every == state.keys()
    half = len(chain.blocks) // 2
    first, second = chain.part(0, half), chain.part(half, len(chain.blocks))
    assert chain.tensors(0, half).isdisjoint(chain.tensors(half, len(chain.blocks)))
    assert {*first.state_dict(), *second.state_dict()} == state.keys()  # by the same names
    images = torch.randn(1, 3, 224, 224)
    module.eval()
    with torch.no_grad():
        assert torch.equal(second(first(images)), module(images))


def test_modes_are_left_as_they_were() -> None:
    module = torchvision.models.resnet18(weights=None)
    module.layer1.eval()
    before = [layer.training for layer in module.modules()]
    find_chain(module, "it")
    assert [layer.training for layer in module.modules()] == before


class Residual(nn.Module):
    """Two layers around which the input goes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, values: Tensor) -> Tensor:
        if values.shape[0] < 0:  # what only an open module would stumble over
            raise ValueError
        return values + self.second(torch.relu(self.first(values)))


class Shared(nn.Module):
    """Uses its first layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, values: Tensor) -> Tensor:
        return self.three(self.one(self.two(self.one(values))))  # type: ignore[no-any-return]


class Deciding(nn.Module):
    """Looks at its values to decide what to do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def forward(self, values: Tensor) -> Tensor:
        return self.layers(values) if values.sum() > 0 else values


class Dropping(Deciding):
    """Drops some values while it trains, without a module that says so."""

    def forward(self, values: Tensor) -> Tensor:
        return F.dropout(self.layers(values), training=self.training)


def test_a_module_with_a_way_around_it_stays_whole() -> None:
    chain = find_chain(nn.Sequential(nn.Linear(3, 4), Residual(4), nn.Sequential(Residual(4), nn.Linear(4, 2))), "it")
    assert chain.names == ("0", "1", "2.0", "2.1")


def test_what_shares_weights_is_not_parted() -> None:
    assert find_chain(Shared(), "it").names == ("one", "three")


def test_layers_that_share_a_weight_are_not_parted() -> None:
    module = nn.Sequential(*(nn.Linear(3, 3) for _ in range(5)))
    module[3].weight = module[1].weight
    chain = find_chain(module, "it")
    assert chain.names == ("0", "1", "4")
    keep_only(module, chain.tensors(1, 2), torch.device("cpu"))
    assert not module[3].weight.is_meta
    assert module[4].weight.is_meta


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        (Deciding(), "can't be used as an input|control flow"),
        (Dropping(), r"differs between training and evaluation \(self.training\)"),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), "one block that can't be taken apart"),
    ],
)
def test_what_cannot_be_split_is_refused_with_a_fix(module: nn.Module, problem: str) -> None:
    with pytest.raises(
        StudyError, match=rf"got mine\(\) with .*({problem}).*; write it as nn.Sequential of blocks, or"
    ):
        find_chain(module, "mine()")


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_the_slowest_stage_is_as_fast_as_any_split_makes_it(stages: int) -> None:
    generator = torch.Generator().manual_seed(stages)
    for _ in range(20):
        seconds = torch.rand(8, generator=generator).tolist()
        starts = balanced(seconds, stages)

        def slowest(starts: tuple[int, ...], seconds: list[float] = seconds) -> float:
            return max(sum(seconds[a:b]) for a, b in zip(starts, (*starts[1:], 8), strict=True))

        best = min(slowest((0, *rest)) for rest in combinations(range(1, 8), stages - 1))
        assert len(starts) == stages
        assert starts[0] == 0
        assert slowest(starts) == pytest.approx(best)


def test_measuring_leaves_the_network_as_it_was() -> None:
    module = torchvision.models.resnet18(weights=None)
    module.layer1.requires_grad_(requires_grad=False)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    learns = [parameter.requires_grad for parameter in module.parameters()]
    chain = find_chain(module, "it")
    costs = measure(chain, torch.randn(2, 3, 64, 64), lambda: torch.autocast("cpu", torch.bfloat16))
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert [parameter.requires_grad for parameter in module.parameters()] == learns
    assert module.training
    assert costs[chain.names.index("layer2.1")].shape == (128, 8, 8)
    assert costs[-1].shape == (1000,)
    assert costs[-1].dtype == torch.bfloat16
    assert all(cost.seconds > 0 for cost in costs)


class Watched(torch.autograd.Function):
    """Hands values on, and tells whether their gradient is asked for."""

    asked: ClassVar[list[bool]] = []

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor) -> Tensor:
        return values * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        Watched.asked.append(ctx.needs_input_grad[0])
        return (gradients[0] if ctx.needs_input_grad[0] else None), gradients[0].sum().reshape(1)


class Watching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, values: Tensor) -> Tensor:
        watched: Tensor = Watched.apply(values, self.weight)
        return watched


def test_the_first_block_is_measured_without_the_gradient_of_images_which_training_never_takes() -> None:
    Watched.asked.clear()
    chain = find_chain(nn.Sequential(Watching(), Watching(), nn.Flatten(), nn.Linear(12, 2)), "it")
    measure(chain, torch.randn(2, 3, 2, 2), nullcontext)
    assert Watched.asked == [False] * ROUNDS + [True] * ROUNDS
    Watched.asked.clear()
    measure(chain, torch.randn(2, 3, 2, 2), nullcontext, backward=False)
    assert Watched.asked == []


def test_a_split_may_be_given() -> None:
    chain = find_chain(torchvision.models.resnet18(weights=None), "it")
    assert split_at(chain, "layer2.0, layer4.1", 3) == (0, chain.names.index("layer2.0"), chain.names.index("layer4.1"))
    assert split_at(chain, None, 3) is None


@pytest.mark.parametrize("names", ["layer2", "layer3.0 layer2.0", "layer2.0", "conv1 layer2.0", "layer2.0 layer2.0"])
def test_a_split_that_is_none_is_refused(names: str) -> None:
    chain = find_chain(torchvision.models.resnet18(weights=None), "it")
    with pytest.raises(
        StudyError, match=r"a block for each of the 2 stages after the first .* choose among bn1, layer1.0"
    ):
        split_at(chain, names, 3)


def test_more_devices_than_blocks_are_refused() -> None:
    chain = find_chain(Shared(), "it")
    with pytest.raises(StudyError, match=r"a block for each device, got 3 devices and 2 blocks \(one, three\)"):
        split_at(chain, None, 3)


@pytest.mark.parametrize(
    ("images", "size", "runs"),
    [
        (8, 2, [(0, 8, 2, 4)]),
        (9, 2, [(0, 6, 2, 3), (6, 9, 3, 1)]),
        (10, 4, [(0, 8, 4, 2), (8, 10, 2, 1)]),
        (3, 8, [(0, 3, 3, 1)]),
        (3, 1, [(0, 3, 1, 3)]),
    ],
)
def test_micro_batches_of_one_length_go_together(images: int, size: int, runs: list[tuple[int, ...]]) -> None:
    found = equal_runs(images, size)
    assert [(part.start, part.stop, length, count) for part, length, count in found] == runs


def test_what_a_stage_has_not_takes_no_memory() -> None:
    module: Any = torchvision.models.resnet18(weights=None)
    chain = find_chain(module, "it")
    names, last = list(module.state_dict()), module.fc.weight
    keep_only(module, chain.tensors(len(chain.blocks) - 1, len(chain.blocks)), torch.device("cpu"))
    assert list(module.state_dict()) == names
    assert module.fc.weight is last
    assert [name for name, value in module.state_dict().items() if not value.is_meta] == ["fc.weight", "fc.bias"]
    assert module.bn1.running_mean.is_meta
