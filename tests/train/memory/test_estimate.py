"""Memory estimated with tensors without contents, beside what torch's allocator really hands out on the CPU."""

import gc
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

from tests import hub_cache
from tuner import Folds
from tuner.errors import StudyError
from tuner.train import Trainer
from tuner.train.memory.estimate import Images, LiveStorages, MemoryEstimator, alike, estimate_memory
from tuner.trial import ImageClassifier

SMALL = [
    ("resnet18", 28, 1, {"batch_size": 64}),
    ("resnet18", 32, 3, {"batch_size": 32, "optimizer": "sgd", "ema_decay": 0.99, "clip_norm": 1.0}),
    ("resnet18", 48, 3, {"batch_size": 256, "finetune": "head", "flip": 0.5}),
    pytest.param("resnet50", 32, 3, {"batch_size": 8}, marks=pytest.mark.slow),
]
LARGE = [
    ("resnet18", 32, 3, {"batch_size": 512}),
    ("resnet18", 32, 3, {"batch_size": 32, "precision": "bf16"}),  # slow where bf16 is emulated
    ("resnet18", 64, 3, {"batch_size": 128}),
    ("resnet18", 96, 3, {"batch_size": 64, "optimizer": "adamw"}),
    ("resnet18", 224, 3, {"batch_size": 16}),
    ("resnet50", 32, 3, {"batch_size": 128}),
    ("resnet50", 64, 3, {"batch_size": 64}),
    ("resnet50", 96, 3, {"batch_size": 32, "ema_decay": 0.99}),
    ("resnet50", 128, 3, {"batch_size": 16}),
    ("resnet50", 224, 3, {"batch_size": 16}),
]

# Convolutions of the older instruction sets take memory of their own, which depends on the processor: with AVX2 alone
# two of the small cases are 12 % below what is really taken, with AVX-512 none is more than 5 % off.
MOST_BELOW = 0.05 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 0.15


def random_data(pixels: int, channels: int, images: int) -> Any:
    def data() -> tuple[Any, Any, Any]:
        def split(count: int) -> tuple[Tensor, Tensor]:
            generator = torch.Generator().manual_seed(count)
            drawn = torch.randint(0, 256, (count, channels, pixels, pixels), generator=generator, dtype=torch.uint8)
            return drawn, torch.arange(count) % 2

        return split(images), split(16), split(6)

    return data


def allocated(event: Any) -> list[tuple[int, int]]:
    """Time and bytes of each allocation, and of each return with a minus, within an event of the profiler."""
    own = event.tag == _EventType.Allocation
    found = [(event.start_time_ns, event.extra_fields.alloc_size)] if own else []
    return found + [each for child in event.children for each in allocated(child)]


def peak_of_an_epoch(trial: ImageClassifier, config: dict[str, Any]) -> int:
    """Bytes at the peak of the real trainer's second epoch, found by torch's profiler in its CPU allocator."""
    running = Trainer(trial, config, epochs=2)
    running.run_epoch()
    running.parts.optimizer.zero_grad(set_to_none=True)
    gc.collect()
    average = [] if running.parts.average is None else list(running.parts.average.module.state_dict().values())
    state = [value for each in running.parts.optimizer.state.values() for value in each.values()]
    held = sum(tensor.nbytes for tensor in [*running.module.state_dict().values(), *average, *state])
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        running.run_epoch()
    events = profiler.profiler.kineto_results.experimental_event_tree()  # type: ignore[union-attr]
    sizes = [size for _, size in sorted(each for event in events for each in allocated(event))]
    return held + max(itertools.accumulate(sizes))


def compare(model: str, pixels: int, channels: int, config: dict[str, Any]) -> float:
    """The estimate as a share of the real peak."""
    size = config["batch_size"]
    trial = ImageClassifier(random_data(pixels, channels, size), model, weights=None)
    found = MemoryEstimator(trial, epochs=2, split_seed=0, device="cpu", free_bytes=0)(config)
    assert found.peak_bytes is not None, found.unknown
    return found.peak_bytes / peak_of_an_epoch(trial, config)


@pytest.mark.parametrize(("model", "pixels", "channels", "config"), SMALL)
def test_an_estimate_is_within_five_percent_of_what_an_epoch_allocates(
    model: str, pixels: int, channels: int, config: dict[str, Any]
) -> None:
    assert 1 - MOST_BELOW < compare(model, pixels, channels, config) < 1.05


@pytest.mark.slow
@pytest.mark.parametrize(("model", "pixels", "channels", "config"), LARGE)
def test_so_it_is_at_five_sizes_of_two_networks(model: str, pixels: int, channels: int, config: dict[str, Any]) -> None:
    assert 1 - MOST_BELOW < compare(model, pixels, channels, config) < 1.05


def test_a_network_of_the_users_is_estimated_too() -> None:
    def network(config: dict[str, Any]) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(3 * 16 * 16, config["width"]), nn.ReLU(), nn.Linear(config["width"], 2)
        )

    trial = ImageClassifier(random_data(16, 3, 8), network, weights=None)
    estimator = MemoryEstimator(trial, epochs=1, split_seed=0, device="cpu", free_bytes=0)
    narrow, wide = (estimator({"width": width, "batch_size": 8}).peak_bytes for width in (100, 1000))
    weights = 4 * (3 * 16 * 16 * 1000 + 1000 + 2000 + 2)
    assert narrow is not None
    assert wide is not None
    assert 4 * weights < wide < 4.1 * weights  # with their gradients and Adam's two moments
    assert narrow < wide / 9


def test_a_network_that_looks_at_its_values_has_no_estimate_but_a_reason() -> None:
    class Impatient(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3 * 16 * 16, 2)

        def forward(self, images: Tensor) -> Tensor:
            return self.layer(images.flatten(1)) if images.sum() > 0 else self.layer(-images.flatten(1))

    trial = ImageClassifier(random_data(16, 3, 8), lambda config: Impatient(), weights=None)
    found = MemoryEstimator(trial, epochs=1, split_seed=0, device="cpu", free_bytes=0)({"batch_size": 8})
    assert (found.peak_bytes, found.least_bytes) == (None, None)
    assert found.unknown.startswith("its memory can't be estimated (DataDependentOutputException")
    assert '"batch_size": 8' in found.alike


def test_one_image_alone_takes_less_but_not_less_than_the_weights() -> None:
    trial = ImageClassifier(random_data(24, 3, 8), "resnet18", weights=None)
    images = Images(3, 24, 24, 2, train=512, validation=8)
    found = estimate_memory(trial, {"batch_size": 512}, images, epochs=1, device="cpu")
    weights = sum(p.nbytes for p in Trainer(trial, {"batch_size": 8}, epochs=1).module.parameters())
    assert found.peak_bytes is not None
    assert found.least_bytes is not None
    assert 4 * weights < found.least_bytes < found.peak_bytes / 1.5


def test_a_gpu_holds_the_images_too_unless_they_take_more_than_a_quarter_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_SWITCHED_OFF", "graph")
    trial = ImageClassifier(random_data(16, 3, 100), "resnet18", weights=None)

    def peak(device: str, free_bytes: float) -> int:
        found = MemoryEstimator(trial, epochs=1, split_seed=0, device=device, free_bytes=free_bytes)({"batch_size": 16})
        return found.peak_bytes or 0

    held = (100 + 16) * 3 * 16 * 16  # training and validation, without test
    assert peak("cuda", 5 * held) - peak("cuda", 3 * held) == held
    assert peak("cpu", 5 * held) == peak("cuda", 3 * held)  # a batch of validation holds all 16 images on both


def recorded_and_eager(trial: ImageClassifier, images: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The peaks of a trial with and without a recording of its steps of 64 images, and two for validation."""
    found = []
    for switched_off in ("", "graph"):
        monkeypatch.setenv("TUNER_SWITCHED_OFF", switched_off)
        given = Images(3, 24, 24, 2, train=images, validation=2)
        found.append(estimate_memory(trial, {"batch_size": 64}, given, epochs=1, device="cuda").peak_bytes or 0)
    return found[0], found[1]


@pytest.mark.parametrize(("images", "last"), [(64, 0), (64 + 48, 48)])
def test_a_recording_keeps_its_memory_beside_an_eager_last_batch_or_validation(
    monkeypatch: pytest.MonkeyPatch, images: int, last: int
) -> None:
    """A step of 64 images takes 64 times as much as one of them; validation of two takes less than a step of 48."""
    trial = ImageClassifier(random_data(24, 3, 8), "resnet18", weights=None)
    recorded, eager = recorded_and_eager(trial, images, monkeypatch)
    activations = eager - peak_before(trial)
    if last:
        assert recorded - eager == pytest.approx(activations * last / 64, rel=0.01)
    else:
        assert 0 < recorded - eager < activations / 8


def test_each_network_of_a_cross_validation_keeps_its_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = ImageClassifier(random_data(24, 3, 8), "resnet18", weights=None)
    one, eager = recorded_and_eager(trial, 64, monkeypatch)
    assert recorded_and_eager(replace(trial, validation=Folds(3)), 64, monkeypatch)[0] == one + 2 * eager


def peak_before(trial: ImageClassifier) -> int:
    """Bytes of the weights, Adam's two moments and gradients, without activations."""
    return 4 * sum(p.nbytes for p in Trainer(trial, {"batch_size": 8}, epochs=1).module.parameters())


def test_configurations_that_differ_in_what_takes_no_memory_are_estimated_once() -> None:
    trial = ImageClassifier(random_data(16, 3, 8), "resnet18", weights=None)
    same = [{"lr": lr, "mixup": mixup, "schedule": "cosine"} for lr, mixup in ((0.1, 0.2), (0.01, 0.4))]
    assert len({alike(trial, config) for config in same}) == 1
    others = [{"batch_size": 8}, {"optimizer": "sgd"}, {"optimizer": "sgd", "momentum": 0.0}, {"ema_decay": 0.9}]
    others += [{"finetune": "gradual"}, {"finetune": "gradual", "unfreeze_every": 2}, {"precision": "bf16"}]
    others += [{"auto_augment": "rand"}, {"cutmix": 1.0}, {"freeze_batch_norm": True}, {"test_time_flip": True}]
    others += [{"finetune": "lp-ft"}, {"finetune": "lp-ft", "probe_epochs": 2}]
    assert len({alike(trial, config) for config in [*same, *others]}) == 1 + len(others)
    policies = [{"auto_augment": kind, "rand_augment_magnitude": 5} for kind in ("none", "rand")]
    assert [alike(trial, policy) == alike(trial, {}) for policy in policies] == [True, False]
    assert alike(trial, {"probe_epochs": 2, "probe_lr": 0.1}) == alike(trial, {})
    estimator = MemoryEstimator(trial, epochs=1, split_seed=0, device="cpu", free_bytes=0)
    assert estimator({"lr": 0.1, "batch_size": 4}) is estimator({"lr": 0.2, "batch_size": 4})


def test_storages_that_are_gone_count_no_more_and_shared_ones_once() -> None:
    storages = LiveStorages()
    with storages:
        first = torch.zeros(1000)
        view = first[:10]
        second = first + 1
        del second
    assert (storages.bytes, storages.peak, view.shape) == (4096, 8192, (10,))
    del first
    assert storages.bytes == 4096
    del view
    assert storages.bytes == 0


def test_an_estimate_needs_hyperparameters_that_work() -> None:
    trial = ImageClassifier(random_data(16, 3, 8), "resnet18", weights=None)
    with pytest.raises(StudyError, match="'batch' is not a hyperparameter"):
        estimate_memory(trial, {"batch": 8}, Images(3, 16, 16, 2, 8, 8), epochs=1, device="cpu")


HUBS = {
    "vit": transformers.ViTConfig(hidden_size=192, num_hidden_layers=3, num_attention_heads=3, image_size=64),
    "convnext": transformers.ConvNextConfig(hidden_sizes=[64, 96, 128, 192], depths=[1, 1, 1, 1]),
}


@pytest.mark.parametrize(
    ("family", "config"),
    [("vit", {"batch_size": 64}), ("convnext", {"batch_size": 64, "finetune": "head", "flip": 0.5})],
)
def test_so_it_is_for_models_of_the_hub(
    family: str, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    processor = transformers.ViTImageProcessor(size={"height": 64, "width": 64})
    hub_cache.put_saved(tmp_path / "hf", f"small/{family}", tmp_path / "saved", HUBS[family], processor)
    assert 1 - MOST_BELOW < compare(f"hf:small/{family}", 64, 3, config | {"image_size": 64}) < 1.05
