"""How often intervals of a cross-validation contain the true value: many small data sets, and a large test set.

    python benchmarks/folds.py [--repetitions 1000] [--quick]

Each data set is drawn again: images of three classes, as 10 features that are normal about their class's mean. They lie
in parts as tuner puts them; a softmax head is trained for each part, and one on all images. 20,000 further images tell
how good each head is. Counted is how often a 90 % interval about the mean accuracy of the parts holds

  trained: the accuracy that heads come to on average, over data sets and parts, with as many training images
  networks: the mean accuracy of the very heads of this cross-validation
  refit: the accuracy of the head that was trained on all images

by five intervals: `plain`, the parts' standard deviation by the root of their number, times a quantile of Student's t
with k - 1 degrees of freedom; `corrected, t`, the standard error of Nadeau and Bengio (2003), times the same;
`corrected`, that error times a normal quantile; `told`, what tuner reports, which is wider with two or three parts;
`images`, the standard error of the share of right answers of all images together (Bayle et al. 2020), times a normal
quantile. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats
from torch import Tensor
from torch.nn import functional as F

from tuner.train.cross_validation import corrected_error, reported_error
from tuner.train.data.cutting import spread

CLASSES, FEATURES, STEPS, LR, DECAY = 3, 10, 150, 0.5, 1e-3
AT_ONCE = 50  # data sets
TEST_IMAGES = 20_000
LEVEL = 0.90
BY = ("plain", "corrected, t", "corrected", "told", "images")
SETTINGS = [(60, 5), (200, 5), (1000, 5), (200, 10), (200, 4), (200, 3), (60, 3), (200, 2)]  # images, parts


@dataclass(frozen=True)
class Repetition:
    """One cross-validation: accuracies of the parts as validated, of their heads in truth, and of the head of all."""

    validated: list[float]
    sizes: list[int]
    true: list[float]
    refit: float


def draw(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Features [count, FEATURES] and labels [count]."""
    labels = torch.randint(CLASSES, (count,), generator=generator)
    means = torch.zeros(CLASSES, FEATURES)
    means[range(CLASSES), range(CLASSES)] = 1.5
    return means[labels] + torch.randn(count, FEATURES, generator=generator), labels


def train(features: Tensor, labels: Tensor, used: Tensor) -> Tensor:
    """Heads [S, H, FEATURES + 1, CLASSES] for features [S, N, F], labels [S, N] and shares of use [S, H, N]."""
    inputs = torch.cat([features, torch.ones(*features.shape[:2], 1)], 2)
    targets = F.one_hot(labels, CLASSES).float()[:, None]
    weights = torch.zeros(features.shape[0], used.shape[1], FEATURES + 1, CLASSES)
    shares = (used / used.sum(2, keepdim=True))[..., None]
    for _ in range(STEPS):
        errors = ((inputs[:, None] @ weights).softmax(3) - targets) * shares
        weights -= LR * (inputs[:, None].transpose(2, 3) @ errors + DECAY * weights)
    return weights


def answers(weights: Tensor, features: Tensor) -> Tensor:
    """The likeliest classes [..., N]."""
    return (features @ weights[..., :-1, :] + weights[..., -1:, :]).argmax(-1)


def repetitions(images: int, parts: int, count: int, seed: int) -> Iterator[Repetition]:
    """Cross-validations of `count` data sets."""
    generator = torch.Generator().manual_seed(seed)
    test, test_labels = draw(TEST_IMAGES, generator)
    for start in range(0, count, AT_ONCE):
        sets = [draw(images, generator) for _ in range(min(AT_ONCE, count - start))]
        features, labels = (torch.stack(each) for each in zip(*sets, strict=True))
        part_of = torch.stack([_parts(one, parts, [seed, start, index]) for index, one in enumerate(labels)])
        held = part_of[:, None] == torch.arange(parts)[:, None]
        used = torch.cat([~held, torch.ones_like(held[:, :1])], 1).float()
        weights = train(features, labels, used)
        right = answers(weights[:, :-1], features[:, None]) == labels[:, None]
        for index in range(len(sets)):
            sizes = held[index].sum(1)
            validated = (right[index] & held[index]).sum(1) / sizes
            true = [float((answers(head, test) == test_labels).float().mean()) for head in weights[index]]
            yield Repetition(validated.tolist(), sizes.tolist(), true[:-1], true[-1])


def _parts(labels: Tensor, parts: int, seed: list[int]) -> Tensor:
    """The part of each image, all of which differ."""
    alone = np.arange(len(labels))
    found = spread(labels.numpy(), alone.astype(np.uint64), alone, parts, np.random.default_rng(seed))
    return torch.from_numpy(found)


def intervals(one: Repetition) -> dict[str, tuple[float, float]]:
    """Low and high end by each standard error."""
    count, mean = len(one.validated), float(np.mean(one.validated))
    quantile, normal = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)), float(stats.norm.ppf((1 + LEVEL) / 2))
    share = float(np.average(one.validated, weights=one.sizes))
    half = {
        "plain": quantile * float(np.std(one.validated, ddof=1)) / math.sqrt(count),
        "corrected, t": quantile * corrected_error(one.validated),
        "corrected": normal * corrected_error(one.validated),
        "told": normal * reported_error(one.validated),
        "images": normal * math.sqrt(share * (1 - share) / sum(one.sizes)),
    }
    return {name: (mean - width, mean + width) for name, width in half.items()}


def measure(images: int, parts: int, count: int, seed: int) -> list[dict[str, float | str]]:
    """A row for each standard error."""
    found = list(repetitions(images, parts, count, seed))
    average = float(np.mean([one.true for one in found]))
    rows: list[dict[str, float | str]] = []
    for name in BY:
        each = [intervals(one)[name] for one in found]
        truths = {
            "trained": [average] * count,
            "networks": [float(np.mean(one.true)) for one in found],
            "refit": [one.refit for one in found],
        }
        held = {
            truth: float(np.mean([low <= value <= high for (low, high), value in zip(each, values, strict=True)]))
            for truth, values in truths.items()
        }
        width = float(np.mean([high - low for low, high in each]))
        rows.append({"images": images, "parts": parts, "by": name, **held, "width": width, "accuracy": average})
    return rows


def main() -> None:
    """Measure all settings, and print a table and one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000, help="data sets of each setting (default: 1000)")
    parser.add_argument("--quick", action="store_true", help="20 data sets of the first setting")
    parser.add_argument("--first-seed", type=int, default=0, help="of the settings; the next ones follow")
    options = parser.parse_args()
    settings, count = (SETTINGS[:1], 20) if options.quick else (SETTINGS, options.repetitions)
    rows = []
    print("| images | parts | interval | trained | networks | refit | mean width |\n|---|---|---|---|---|---|---|")
    for seed, (images, parts) in enumerate(settings, options.first_seed):
        for row in measure(images, parts, count, seed):
            rows.append(row)
            held = " | ".join(f"{row[truth]:.1%}" for truth in ("trained", "networks", "refit"))
            print(f"| {images} | {parts} | {row['by']} | {held} | {row['width']:.3f} |", flush=True)
    print(json.dumps({"repetitions": count, "level": LEVEL, "rows": rows}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
