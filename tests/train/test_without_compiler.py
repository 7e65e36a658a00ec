"""Training leaves torch's compiler unloaded, and is the same as with it: in a process of its own, as it stays loaded."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn, optim

from tests.commands import ROOT
from tests.forked import run_copy
from tuner.train.without_compiler import uncompiled
from tuner.trial import ImageClassifier

IN_A_WORKER = """
import sys

from tuner.trial import ImageClassifier
from tuner.worker.clean_process import clean_process

with clean_process(seed=0, threads=1):
    from tests.train.conftest import small_model
    from tuner.inspection import scoring
    from tuner.train import Trainer

    trial = ImageClassifier(sys.argv[1], model=small_model, weights=None)
    for optimizer in ("sgd", "adam", "adamw"):
        Trainer(trial, {"optimizer": optimizer, "image_size": 12}, epochs=1, seed=0, split_seed=0).run_epoch()
    for config in ({"random_resized_crop": 0.5}, {"auto_augment": "trivial"}):
        Trainer(trial, {**config, "image_size": 12}, epochs=1, seed=0, split_seed=0).run_epoch()
    from tuner.train.checkpoint_size import checkpoint_bytes

    checkpoint_bytes(ImageClassifier(sys.argv[1], "resnet18", weights=None), [{}], epochs=1, channels=3, classes=3)
    loaded = [name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules]
    import tuner.train.parallel.pipeline
    from tuner.train.memory.estimate import Images, estimate_memory

    for config in ({}, {"optimizer": "adamw", "ema_decay": 0.9, "mixup": 0.2}):
        estimate_memory(trial, config, Images(3, 12, 12, 3, 30, 10), epochs=2, device="cpu")
loaded += [name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules]

import torch
from torch import nn
from torchvision.ops import roi_align

network = nn.Linear(2, 2)
compiled = torch.compile(network, backend="eager")(torch.ones(1, 2))
boxes = roi_align(torch.ones(1, 1, 4, 4), torch.tensor([[0.0, 0, 0, 2, 2]]), 1)
print(loaded, torch.equal(compiled, network(torch.ones(1, 2))), float(boxes), "torch._dynamo" in sys.modules)
"""


def test_a_worker_trains_without_the_compiler_which_is_there_when_it_is_wanted(colours: ImageClassifier) -> None:
    command = [sys.executable, "-c", IN_A_WORKER, str(colours.data)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.stdout.strip() == "[] True 1.0 True", finished.stderr


IN_A_MODE = """
import sys

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tuner.train.without_compiler import compiler_not_needed

guarded = FakeTensorMode.__torch_dispatch__.__wrapped__
network = nn.Linear(2, 2)
with compiler_not_needed(), FakeTensorMode(allow_non_fake_inputs=True):
    shape = tuple(network(torch.ones(3, 2)).shape)
print(shape, "torch._dynamo" in sys.modules, hasattr(guarded, "__dynamo_disable"))
with compiler_not_needed():
    {wanted}
print(sys.modules["torch._dynamo"].__file__.endswith("_dynamo/__init__.py"), vars(torch)["_dynamo"].decorators.__name__)
compiled = torch.compile(network, backend="eager")(torch.ones(1, 2))
with compiler_not_needed(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
    found = type(network(mode.from_tensor(torch.ones(3, 2)))).__name__
print(torch.equal(compiled, network(torch.ones(1, 2))), found, hasattr(guarded, "__dynamo_disable"))
"""


@pytest.mark.parametrize(
    "wanted",
    [
        'torch.compile(network, backend="eager")(torch.ones(1, 2))',
        pytest.param(
            "import torch._dynamo.backends.registry; from torch._dynamo.utils import counters", marks=pytest.mark.slow
        ),
        pytest.param("torch._dynamo.config.verbose", marks=pytest.mark.slow),
    ],
)
def test_what_is_wanted_of_the_compiler_loads_it_and_its_guards_come_back(wanted: str) -> None:
    finished = run_copy(IN_A_MODE.replace("{wanted}", wanted))
    assert finished.out.splitlines() == [
        "(3, 2) False False",
        "True torch._dynamo.decorators",
        "True FakeTensor True",
    ], finished.err


IN_A_GROUP = """
import sys

import torch
from torch import nn

from tuner.train.parallel.group import Group, joined, without_synchronising

with joined(0, 1, sys.argv[1]):
    network = nn.Linear(2, 1, bias=False)
    averaged = Group(size=1).synchronised(network)
    for last in (False, True):
        with without_synchronising(averaged, last=last):
            averaged(torch.ones(3, 2)).sum().backward()
    loaded = [name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules]
    print(loaded, network.weight.grad.tolist())
    torch.compile(network, backend="eager")(torch.ones(1, 2))  # which loads it
    network.weight.grad = None
    again = Group(size=1).synchronised(network)
    averaged(torch.ones(3, 2)).sum().backward()
    again(torch.ones(3, 2)).sum().backward()
    print("torch._dynamo" in sys.modules, network.weight.grad.tolist(), type(again).__name__)
"""


def test_processes_of_one_trial_average_gradients_without_the_compiler(tmp_path: Path) -> None:
    finished = run_copy(IN_A_GROUP, str(tmp_path / "meeting"))
    lines = finished.out.splitlines()
    assert lines == ["[] [[6.0, 6.0]]", "True [[6.0, 6.0]] DistributedDataParallel"], finished.err


def trained(kind: type[optim.Optimizer], options: dict[str, float | bool]) -> tuple[list[Tensor], optim.Optimizer]:
    torch.manual_seed(0)
    network = nn.Linear(5, 3)
    optimizer = kind(network.parameters(), **options)  # type: ignore[arg-type]
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "lr": 0.5})
    for _ in range(3):
        optimizer.zero_grad()
        network(torch.randn(4, 5)).square().sum().backward()
        optimizer.step()
    return [parameter.detach() for parameter in network.parameters()], optimizer


KINDS = [
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "fused": True}),
    (optim.Adam, {"lr": 0.1, "fused": True}),
    (optim.AdamW, {"lr": 0.1, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=["sgd", "adam", "adamw"])
def test_an_optimizer_without_guards_does_what_torchs_own_does(kind, options):
    expected, own = trained(kind, options)
    result, bare = trained(uncompiled(kind), options)
    assert all(torch.equal(one, other) for one, other in zip(result, expected, strict=True))
    assert isinstance(bare, kind)
    assert torch.is_grad_enabled()
    assert [str(state) for state in bare.state.values()] == [str(state) for state in own.state.values()]
    bare.load_state_dict(copy.deepcopy(own.state_dict()))
    assert bare.state_dict()["param_groups"] == own.state_dict()["param_groups"]


def test_the_guards_are_taken_away_also_where_torch_counts_the_steps_already() -> None:
    trained(optim.SGD, {"lr": 0.1})  # the first optimizer of a kind wraps its step once more
    bare = uncompiled(optim.SGD)
    assert {"step", "zero_grad", "add_param_group"} <= set(vars(bare))
    steps: list[str] = []
    _, optimizer = trained(bare, {"lr": 0.1})
    optimizer.register_step_post_hook(lambda *_: steps.append("step"))
    optimizer.step()
    assert steps == ["step"]  # what counts is put around the bare step again
