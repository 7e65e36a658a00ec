"""Intervals of the winner's test metrics."""

import torch

from tuner.inspection.intervals import intervals
from tuner.train.tasks.one_label import ClassTargets
from tuner.trial.tasks import ONE_LABEL

CHOSEN = ONE_LABEL.chosen_metrics(["balanced_accuracy", "cohen_kappa", "calibration_error"])
TARGETS = ClassTargets(("a", "b", "c"))


def answers(count: int, numbers: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(3, (count,), generator=numbers)
    return torch.randn(count, 3, generator=numbers) + 1.5 * torch.eye(3)[labels], labels


def test_each_metric_has_an_interval_around_it_and_says_by_what() -> None:
    logits, labels = answers(200, torch.Generator().manual_seed(0))
    found = TARGETS.metrics(logits, labels, CHOSEN)
    told = intervals(TARGETS, logits, labels, CHOSEN)
    values = {name.removeprefix("test_"): value for name, value in found.by_name("test").items()}
    assert list(told) == ["accuracy", "loss", "f1", *(metric.name for metric in CHOSEN)]
    assert {name for name, one in told.items() if one.method == "wilson"} == {"accuracy"}
    assert all(told[name].low <= value <= told[name].high for name, value in values.items())
    assert told == intervals(TARGETS, logits, labels, CHOSEN)  # the same images, the same intervals


def test_a_few_images_tell_shares_alone() -> None:
    logits, labels = answers(9, torch.Generator().manual_seed(0))
    assert list(intervals(TARGETS, logits, labels, CHOSEN)) == ["accuracy"]
