"""Heads chosen by accuracy or by loss, with few images for validation; and the gain of a refit.

    python benchmarks/few_images.py --data-dir DIR [--seeds 6] [--cuts 3] [--features FILE]

For each seed other photos of five of CIFAR-10's classes: 60 of a class, of which each cut holds out a fifth for
validation, and 160 for the test. Heads on the features of MobileNetV2 with its real ImageNet weights, 20
configurations drawn from the space that `tuner init` wrote for few images before it had heads solved, 20 epochs of
AdamW. A configuration counts by the mean over its last seven epochs, its network is that of the best of them, about as
the product chooses. "refitted" is trained again on all images but those for the test, up to the same epoch; "by folds,
refitted" is chosen by the mean loss of five heads, each validated on another fifth, as `validation=Folds(5)` does it.
Beside them a head with settings picked by hand, Adam at 0.001, batches of 32, ten epochs, on all images but those for
the test; and as `transfer.py`'s plain loop has it: the same for four epochs, on the images for training. Means over
the cuts; ± is the standard error over seeds of the difference to either. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.models import MobileNet_V2_Weights, mobilenet_v2

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.transfer import CLASSES, installed_weights

TRAIN, TEST = 60, 160  # photos of a class
CONFIGURATIONS, EPOCHS, LAST, PARTS = 20, 20, 7, 5
BY_HAND = {"lr": 1e-3, "batch_size": 32, "weight_decay": 0.0, "dropout": 0.2, "label_smoothing": 0.0}

Data = tuple[Tensor, Tensor]  # features [N, 1280], labels [N]


def main() -> None:
    """Measure, print a row per seed, and the figures last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data-dir", type=Path, required=True, help="holds cifar10/train/<class>/*")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--cuts", type=int, default=3)
    parser.add_argument("--features", type=Path, help="a file to keep the features in, or that has them")
    options = parser.parse_args()
    torch.set_num_threads(1)
    features = known_features(options)
    rows = []
    for seed in range(options.seeds):
        found = [searched(*images(features, seed), seed, cut) for cut in range(options.cuts)]
        rows.append({name: float(np.mean([one[name] for one in found])) for name in found[0]})
        print(seed, {name: round(value, 4) for name, value in rows[-1].items()}, flush=True)
    print(json.dumps(figures(rows)))


def known_features(options: argparse.Namespace) -> list[Tensor]:
    """Of each class, [N, 1280]."""
    if options.features and options.features.is_file():
        kept: list[Tensor] = torch.load(options.features)
        return kept
    most = options.seeds * (TRAIN + TEST)
    folders = [options.data_dir / "cifar10" / "train" / name for name in CLASSES]
    found = [backbone_features(sorted(folder.iterdir())[:most]) for folder in folders]
    if options.features:
        torch.save(found, options.features)
    return found


@torch.no_grad()
def backbone_features(paths: Sequence[Path]) -> Tensor:
    """What MobileNetV2 with its real weights answers below its head, [N, 1280]."""
    model = mobilenet_v2()
    model.load_state_dict(torch.load(str(installed_weights()), weights_only=True))
    model.classifier = nn.Identity()  # type: ignore[assignment]
    transform = MobileNet_V2_Weights.IMAGENET1K_V1.transforms()
    return torch.cat([model.eval()(transform(Image.open(path).convert("RGB"))[None]) for path in paths])


def images(features: list[Tensor], seed: int) -> tuple[Data, Data]:
    """For training and validation, and for the test."""
    first = seed * (TRAIN + TEST)
    known = torch.cat([each[first : first + TRAIN] for each in features])
    test = torch.cat([each[first + TRAIN : first + TRAIN + TEST] for each in features])
    labels = torch.arange(len(features))
    return (known, labels.repeat_interleave(TRAIN)), (test, labels.repeat_interleave(TEST))


def trained(data: Data, config: dict[str, Any], epochs: int, seed: int, asked: list[Tensor]) -> list[list[Tensor]]:
    """Logits of the images that are asked about, after each epoch."""
    torch.manual_seed(seed)
    head = nn.Linear(data[0].shape[1], len(CLASSES))
    groups = [{"params": [head.weight], "weight_decay": config["weight_decay"]}, {"params": [head.bias]}]
    optimizer = torch.optim.AdamW(groups, lr=config["lr"], weight_decay=0.0, fused=True)
    told = []
    for _ in range(epochs):
        for rows in torch.randperm(len(data[1])).split(config["batch_size"]):
            optimizer.zero_grad()
            logits = head(nn.functional.dropout(data[0][rows], config["dropout"]))
            loss = nn.functional.cross_entropy(logits, data[1][rows], label_smoothing=config["label_smoothing"])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            told.append([head(each) for each in asked])
    return told


def searched(known: Data, test: Data, seed: int, cut: int) -> dict[str, float]:
    """Test accuracies, in points, of what is chosen by either metric, and of the head by hand."""
    draw = np.random.default_rng([seed, cut])
    held = torch.zeros(len(known[1]), dtype=torch.bool)
    for label in range(len(CLASSES)):
        of_it = (known[1] == label).nonzero()[:, 0]
        held[torch.as_tensor(draw.permutation(of_it.numpy())[: len(of_it) // PARTS])] = True
    training, validation = (known[0][~held], known[1][~held]), (known[0][held], known[1][held])
    configs = [_drawn(draw) for _ in range(CONFIGURATIONS)]
    asked = [validation[0], test[0]]
    curves = [trained(training, config, EPOCHS, 100 * seed + n, asked) for n, config in enumerate(configs)]
    by_hand = trained(known, BY_HAND, 10, seed, [test[0]])[-1][0]
    plain = trained(training, BY_HAND, 4, seed, [test[0]])[-1][0]
    found = {"by hand": _accuracy(by_hand, test[1]), "plain loop": _accuracy(plain, test[1])}
    found["by folds, refitted"] = _by_folds(known, test, configs, seed, draw)
    for name, worth in (("accuracy", _accuracy), ("loss", _negative_loss)):
        values = np.array([[worth(epoch[0], validation[1]) for epoch in curve] for curve in curves])
        best = int(values[:, -LAST:].mean(axis=1).argmax())
        epoch = EPOCHS - LAST + int(values[best, -LAST:].argmax())
        found[f"by {name}"] = _accuracy(curves[best][epoch][1], test[1])
        again = trained(known, configs[best], epoch + 1, seed + 500, [test[0]])
        found[f"by {name}, refitted"] = _accuracy(again[-1][0], test[1])
    return found


def _by_folds(known: Data, test: Data, configs: list[dict[str, Any]], seed: int, draw: np.random.Generator) -> float:
    """Test accuracy of a head on all images, whose settings have the lowest mean loss over the folds."""
    fold = torch.zeros(len(known[1]), dtype=torch.long)
    for label in range(len(CLASSES)):
        of_it = (known[1] == label).nonzero()[:, 0]
        fold[torch.as_tensor(draw.permutation(of_it.numpy()))] = torch.arange(len(of_it)) % PARTS
    values = np.zeros((len(configs), EPOCHS))
    for part in range(PARTS):
        training = known[0][fold != part], known[1][fold != part]
        asked, labels = [known[0][fold == part]], known[1][fold == part]
        for n, config in enumerate(configs):
            curve = trained(training, config, EPOCHS, 100 * seed + n, asked)
            values[n] += [_negative_loss(epoch[0], labels) / PARTS for epoch in curve]
    best = int(values[:, -LAST:].mean(axis=1).argmax())
    epoch = EPOCHS - LAST + int(values[best, -LAST:].argmax())
    again = trained(known, configs[best], epoch + 1, seed + 500, [test[0]])
    return _accuracy(again[-1][0], test[1])


def _drawn(draw: np.random.Generator) -> dict[str, Any]:
    return {
        "lr": math.exp(draw.uniform(math.log(3e-4), math.log(3e-2))),
        "batch_size": int(draw.choice([16, 32])),
        "weight_decay": math.exp(draw.uniform(math.log(1e-5), math.log(1e-1))),
        "dropout": float(draw.choice([0.0, 0.3])),
        "label_smoothing": float(draw.choice([0.0, 0.1])),
    }


def _accuracy(logits: Tensor, labels: Tensor) -> float:
    return 100 * float((logits.argmax(1) == labels).float().mean())


def _negative_loss(logits: Tensor, labels: Tensor) -> float:
    return -float(nn.functional.cross_entropy(logits, labels))


def figures(rows: list[dict[str, float]]) -> dict[str, Any]:
    """The last line: means, and differences with their standard errors."""
    pairs = [(name, "by hand") for name in rows[0]] + [
        ("by loss", "by accuracy"),
        ("by loss, refitted", "by accuracy"),
        ("by loss, refitted", "by accuracy, refitted"),
        ("by loss, refitted", "plain loop"),
        ("by folds, refitted", "by loss, refitted"),
        ("by folds, refitted", "plain loop"),
    ]
    told: dict[str, Any] = {name: round(float(np.mean([row[name] for row in rows])), 2) for name in rows[0]}
    for one, other in pairs[1:]:
        more = np.array([row[one] - row[other] for row in rows])
        error = float(more.std(ddof=1)) / len(more) ** 0.5 if len(more) > 1 else math.nan
        told[f"{one} less {other}"] = f"{more.mean():+.2f} ± {error:.2f}"
    return told


if __name__ == "__main__":
    main()
