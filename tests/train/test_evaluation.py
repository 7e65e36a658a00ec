import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torchmetrics.functional.classification import multiclass_accuracy, multiclass_f1_score

from tests.train.pretend import pretending
from tuner.train import Trainer
from tuner.train.data.splits import HeldSplit
from tuner.train.evaluation import Evaluator
from tuner.train.tasks.one_label import ClassTargets
from tuner.trial import ImageClassifier


class LiveMemory(TorchDispatchMode):
    """Bytes of all tensors that operators made within it and that are still there, and the most since `reset`."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, int] = {}
        self.peak = 0

    def reset(self) -> None:
        self.peak = sum(self.live.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                self._add(value.untyped_storage())
        self.peak = max(self.peak, sum(self.live.values()))
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self.live:
            self.live[storage._cdata] = storage.nbytes()
            weakref.finalize(storage, self.live.pop, storage._cdata)


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("shufflenet_v2_x0_5", {}),
        ("shufflenet_v2_x0_5", {"finetune": "head", "flip": 0.5}),
        ("squeezenet1_1", {"ema_decay": 0.9, "optimizer": "sgd"}),  # keeps least for the backward pass
    ],
)
def test_evaluation_needs_no_more_memory_than_a_training_step(model: str, config: dict[str, Any]) -> None:
    given = {"batch_size": 16, "image_size": 32, "stem": "sum"} | config
    with LiveMemory() as memory:
        trainer = Trainer(ImageClassifier("digits", model, weights=None), given, epochs=1, seed=0, split_seed=0)
        trainer.train(1)
        memory.reset()
        trainer.train(12)  # whose stored images are gathered together, as the validation split's are
        training = memory.peak
        memory.reset()
        trainer.validate()
        assert 0 < memory.peak <= training


@contextmanager
def sizes_through(module: nn.Module) -> Iterator[list[int]]:
    sizes: list[int] = []
    hook = module.register_forward_hook(lambda _, inputs, output: sizes.append(len(inputs[0])))
    yield sizes
    hook.remove()


def test_as_many_images_are_validated_at_once_as_two_steps_train_on() -> None:
    trainer = Trainer(ImageClassifier("digits", weights=None), {"batch_size": 32}, epochs=1, seed=0, split_seed=0)
    with sizes_through(trainer.module) as sizes:
        trainer.validate()
        trainer.parts.training_step.micro_batch_size = 4
        trainer.validate()
    images = len(trainer.splits.validation)
    assert sizes == [len(part) for size in (64, 8) for part in torch.arange(images).split(size)]


def test_evaluation_that_runs_out_of_memory_goes_on_with_half_as_many_images() -> None:
    split = HeldSplit(torch.arange(10.0).view(10, 1, 1, 1), torch.zeros(10, dtype=torch.int64))
    sizes: list[int] = []

    class Small(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            sizes.append(len(images))
            if len(images) > 3:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return images.flatten(1)

    evaluator = Evaluator()
    for at_once in (8, 3):
        with evaluator.at_most(at_once):
            assert evaluator.logits(Small(), split, lambda images: images).flatten().tolist() == list(range(10))
    assert sizes == [8, 4, *[2] * 5, *[1] * 10]  # the 3 are halved twice too: less is free than was thought


@pytest.mark.parametrize(("device", "at_once"), [("cpu", 1), ("cuda", 5)])
def test_large_images_are_fewer_at_once_on_the_cpu_alone(device: str, at_once: int) -> None:
    split = HeldSplit(torch.zeros(2, 1, 1024, 1024, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64))
    with pretending():
        evaluator = Evaluator(device)
        with evaluator.at_most(5):
            assert evaluator.batch_size(split) == at_once
        assert evaluator.batch_size(split) == 1


def test_features_count_as_pixels_do() -> None:
    split = HeldSplit(torch.zeros(2, 512), torch.zeros(2, dtype=torch.int64))
    assert Evaluator().batch_size(split) == 2**19 // 512


@pytest.mark.parametrize(
    ("count", "classes", "asked"), [(300, 7, 7), (50, 3, 3), (50, 5, 5), (50, 6, 6), (40, 10, 4), (1, 10, 10)]
)
def test_metrics_are_those_of_torchmetrics_also_where_classes_are_missing(count: int, classes: int, asked: int) -> None:
    numbers = torch.Generator().manual_seed(count)
    labels = torch.randint(asked, (count,), generator=numbers)
    logits = torch.randn(count, classes, generator=numbers) + 2 * torch.eye(classes)[labels]
    found = ClassTargets(tuple(map(str, range(classes)))).metrics(logits, labels)
    assert found["accuracy"] == multiclass_accuracy(logits, labels, classes, average="micro").item()
    if classes > 5:  # else it is 1
        top5 = multiclass_accuracy(logits, labels, classes, average="micro", top_k=5)
        assert found["top5_accuracy"] == top5.item()
    assert ("top5_accuracy" in found.values) == (classes > 5)
    assert found["f1"] == pytest.approx(multiclass_f1_score(logits, labels, classes, average="macro").item(), abs=1e-6)
    assert found.loss == pytest.approx(nn.functional.cross_entropy(logits, labels).item())
