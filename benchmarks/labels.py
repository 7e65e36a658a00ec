"""Whether `tuner labels` finds labels that were made wrong, and what correcting them is worth.

    python benchmarks/labels.py [--sets flowers trash cifar10 signs] [--cuts 4] [--features DIR]

Heads on the features of MobileNetV2 with its real ImageNet weights, solved with two weight decays, in five folds; the
mean of their out-of-fold answers is judged by `tuner.label_errors.suspects`. Of the photos two thirds of each class are
for training in each cut, the others for the test; of CIFAR-10 200 and 100 of each class. 5 % of the training labels are
made wrong: "uniform", by any other class, and "confused", by the class for which the images are most often taken.

Prints a JSON line for each cut and kind: the share of out-of-fold answers that are right; how many images are listed,
the share of them that were made wrong (precision; the others may have been wrong before), and the share of the wrong
ones that is listed (recall); the best precision at a recall of at least 0.8 if the list went on in its order;
the share of suggestions that are right for those made wrong; precision and recall of cleanlab's default on the same
answers, and its best precision likewise, if it is installed (it is no dependency). Then test accuracies in percent:
with the right labels, with the wrong ones, "corrected" with all suggestions as they are, and "checked" with those that
a user confirms who deletes rows of right labels and writes the right class. The last line for each set and kind has
means, and how much of what was lost comes back.

The features take about ten minutes of two busy CPUs, the rest one; with `--features` they are kept in a folder. Needs
`../shared/data` or TUNER_TEST_DATA, and the package with weights that `tests/train/test_beside_plain_loop.py` names.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.models import mobilenet_v2
from torchvision.transforms import v2

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.transfer import installed_weights
from tuner.label_errors import Judgement, suspects
from tuner.label_errors.confident_learning import confidences

DECAYS = (0.05, 0.2)
FOLDS, WRONG, RECALL = 5, 0.05, 0.8
SIZES = {"flowers": 224, "trash": 224, "cifar10": 128, "signs": 224}
TRAIN, TEST = 200, 100  # of CIFAR-10's images of a class
STATISTICS = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
ROW = ("accuracy", "listed", "precision", "recall", "at_recall", "suggested", "cleanlab_precision", "cleanlab_recall",
       "cleanlab_at_recall", "right", "wrong", "corrected", "checked")  # fmt: skip


@dataclass(frozen=True)
class Images:
    """Features [N, 1280], labels [N], which are for the test in any case, if that is so, and the classes."""

    features: Tensor
    labels: Tensor
    test: Tensor | None
    classes: tuple[str, ...]


def main() -> None:
    """Measure, print a line for each cut and kind, and the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sets", nargs="+", default=[*SIZES], choices=[*SIZES])
    parser.add_argument("--cuts", type=int, default=4)
    parser.add_argument("--features", type=Path, help="a folder to keep the features in, or that has them")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("TUNER_TEST_DATA", "../shared/data")))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.sets:
        images, rows = known(name, options), defaultdict(list)
        for cut in range(options.cuts):
            for row in measured(images, cut):
                rows[row["kind"]].append(row)
                print(json.dumps({"set": name, "cut": cut, **row}), flush=True)
        for kind, each in rows.items():
            means = {key: round(statistics.fmean(one[key] for one in each), 3) for key in ROW if key in each[0]}
            lost = means["right"] - means["wrong"]
            back = {f"{how}_back": round((means[how] - means["wrong"]) / lost, 2) for how in ("corrected", "checked")}
            print(json.dumps({"set": name, "kind": kind, "cuts": len(each), **means, **back}), flush=True)


def known(name: str, options: argparse.Namespace) -> Images:
    """The features of a set, as they are kept, or computed now."""
    kept = options.features and options.features / f"{name}.pt"
    if kept and kept.is_file():
        return Images(**torch.load(kept, weights_only=True))
    pictures = list(cifar10(options.data) if name == "cifar10" else photos(options.data / "photos" / name))
    classes = sorted({one for _, one, _ in pictures})
    test = torch.tensor([part == "test" for _, _, part in pictures])
    labels = torch.tensor([classes.index(one) for _, one, _ in pictures])
    features = features_of([one for one, _, _ in pictures], SIZES[name])
    found = {"features": features, "labels": labels, "test": test if test.any() else None, "classes": tuple(classes)}
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        torch.save(found, kept)
    return Images(**found)


def photos(folder: Path) -> Iterator[tuple[Image.Image, str, str]]:
    """Each photo with its class."""
    for file in sorted(folder.glob("*/*")):
        yield Image.open(file).convert("RGB"), file.parent.name, ""


def cifar10(data: Path) -> Iterator[tuple[Image.Image, str, str]]:
    """The first images of each class and part, with both."""
    left: dict[tuple[str, str], int] = defaultdict(lambda: 0)
    with tarfile.open(data / "cifar10" / "cifar10.tar.xz") as files:
        for member in files:
            part, name = Path(member.name).parts[-3:-1] if member.isfile() else ("", "")
            left[part, name] += 1
            if left[part, name] <= {"train": TRAIN, "test": TEST}.get(part, 0):
                opened = files.extractfile(member)
                assert opened is not None
                yield Image.open(io.BytesIO(opened.read())).convert("RGB"), name, part


@torch.inference_mode()
def features_of(pictures: list[Image.Image], size: int) -> Tensor:
    """What MobileNetV2 with its real weights answers below its head, [N, 1280]."""
    model = mobilenet_v2()
    model.load_state_dict(torch.load(str(installed_weights()), weights_only=True))
    model.classifier = nn.Identity()  # type: ignore[assignment]
    cut = v2.Compose([v2.Resize(size), v2.CenterCrop(size), v2.ToImage()])
    steps = v2.Compose([cut, v2.ToDtype(torch.float32, scale=True), v2.Normalize(*STATISTICS)])
    batches = [pictures[first : first + 32] for first in range(0, len(pictures), 32)]
    return torch.cat([model.eval()(torch.stack([steps(one) for one in batch])) for batch in batches])


def measured(images: Images, cut: int) -> Iterator[dict[str, Any]]:
    """A row for each kind of wrong labels."""
    train, test = in_two(images, cut)
    features, labels, count = images.features[train], images.labels[train], len(images.classes)
    told = answers(features, labels, count, cut)
    confused = np.zeros((count, count))
    np.add.at(confused, (labels.numpy(), told.argmax(1)), 1)
    np.fill_diagonal(confused, -1)
    asked = images.features[test], images.labels[test]
    right = accuracy(features, labels, *asked, count)
    for kind in ("uniform", "confused"):
        given = made_wrong(labels, count, confused if kind == "confused" else None, np.random.default_rng([cut, 1]))
        told = answers(features, given, count, cut)
        row = {"kind": kind, "accuracy": float((told.argmax(1) == labels.numpy()).mean())}
        row |= found(told, given.numpy(), labels.numpy(), images.classes)
        corrected = row.pop("labels")
        checked = torch.where(corrected != given, labels, given)
        for name, used in (("wrong", given), ("corrected", corrected), ("checked", checked)):
            row[name] = accuracy(features, used, *asked, count)
        row["right"] = right
        yield {name: round(one, 4) if isinstance(one, float) else one for name, one in row.items()}


def in_two(images: Images, cut: int) -> tuple[Tensor, Tensor]:
    """The images for training and for the test."""
    if images.test is not None:
        return torch.where(~images.test)[0], torch.where(images.test)[0]
    generator = torch.Generator().manual_seed(cut)
    train, test = [], []
    for label in range(len(images.classes)):
        rows = torch.where(images.labels == label)[0]
        rows = rows[torch.randperm(len(rows), generator=generator)]
        train.append(rows[: 2 * len(rows) // 3])
        test.append(rows[2 * len(rows) // 3 :])
    return torch.cat(train), torch.cat(test)


def made_wrong(labels: Tensor, count: int, confused: np.ndarray | None, generator: np.random.Generator) -> Tensor:
    """Labels of which 5 % are wrong."""
    given = labels.clone()
    for row in generator.choice(len(labels), round(WRONG * len(labels)), replace=False):
        label = int(labels[row])
        given[row] = (
            (label + 1 + int(generator.integers(count - 1))) % count
            if confused is None
            else int(confused[label].argmax())
        )
    return given


def solved(features: Tensor, labels: Tensor, used: Tensor, decays: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Kernels [M, L, D] and biases [M, L] of heads with decays [M] that learn from the images `used` [M, N]."""
    mean = features.mean(0)
    centred = features - mean
    kernels = torch.zeros(len(used), count, features.shape[1], requires_grad=True)
    biases = torch.zeros(len(used), count, requires_grad=True)
    shares = used / used.sum(1, keepdim=True)
    steps = torch.optim.LBFGS([kernels, biases], max_iter=50, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        steps.zero_grad()
        logits = (centred @ kernels.flatten(0, 1).T).view(-1, *biases.shape).transpose(0, 1) + biases[:, None]
        losses = nn.functional.cross_entropy(logits.reshape(-1, count), labels.repeat(len(used)), reduction="none")
        value = (losses.view_as(shares) * shares).sum() + (decays * (kernels**2).sum((1, 2))).sum() / 2
        value.backward()
        return value

    steps.step(loss)
    return kernels.detach(), biases.detach() - kernels.detach() @ mean


def answers(features: Tensor, labels: Tensor, count: int, seed: int) -> np.ndarray:
    """Mean probabilities [N, L] of heads that did not learn from the image."""
    generator, part = np.random.default_rng(seed), np.zeros(len(labels), dtype=np.int64)
    for label in range(count):
        rows = generator.permutation(np.flatnonzero(labels.numpy() == label))
        part[rows] = np.arange(len(rows)) % FOLDS
    folds = torch.from_numpy(part).repeat(len(DECAYS), 1)
    told = torch.zeros(len(labels), count, dtype=torch.float64)
    for fold in range(FOLDS):
        kernels, biases = solved(features, labels, (folds != fold).float(), torch.tensor(DECAYS), count)
        rows = torch.from_numpy(part == fold)
        logits = torch.einsum("nd,mld->mnl", features[rows], kernels) + biases[:, None]
        told[rows] = logits.double().softmax(-1).mean(0)
    return told.numpy()


def accuracy(features: Tensor, labels: Tensor, images: Tensor, right: Tensor, count: int) -> float:
    """Percentage of test images that the mean answer of heads gets right."""
    kernels, biases = solved(features, labels, torch.ones(len(DECAYS), len(labels)), torch.tensor(DECAYS), count)
    logits = torch.einsum("nd,mld->mnl", images, kernels) + biases[:, None]
    return 100 * float((logits.softmax(-1).mean(0).argmax(1) == right).float().mean())


def found(told: np.ndarray, given: np.ndarray, labels: np.ndarray, classes: tuple[str, ...]) -> dict[str, Any]:
    """What is listed and how right it is, and under "labels" [N] what the list suggests."""
    names = [str(row) for row in range(len(given))]
    listed = suspects(Judgement(classes, names, given, told, ("00000",), len(given), True, ()))
    rows, wrong = np.array([*listed], dtype=np.int64), given != labels
    suggested = given.copy()
    for row, one in listed.items():
        suggested[row] = classes.index(one.suggested)
    others = np.setdiff1d(np.arange(len(given)), rows)
    others = others[np.argsort(-confidences(told, given)[others])]
    row = {
        "listed": len(rows),
        "precision": float(wrong[rows].mean()) if len(rows) else 1.0,
        "recall": float(wrong[rows].sum() / wrong.sum()),
        "at_recall": at_recall(np.concatenate([rows, others]), wrong),
        "suggested": float((suggested == labels)[rows][wrong[rows]].mean()) if wrong[rows].any() else 1.0,
        "labels": torch.from_numpy(suggested),
    }
    with suppress(ImportError):
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores

        theirs = find_label_issues(given, told, return_indices_ranked_by="self_confidence", n_jobs=1)
        row["cleanlab_precision"] = float(wrong[theirs].mean())
        row["cleanlab_recall"] = float(wrong[theirs].sum() / wrong.sum())
        row["cleanlab_at_recall"] = at_recall(np.argsort(get_label_quality_scores(given, told)), wrong)
    return row


def at_recall(order: np.ndarray, wrong: np.ndarray) -> float:
    """The best precision of the first images in this order that have 80 % of the wrong ones."""
    hits = wrong[order].cumsum()
    enough = hits >= RECALL * wrong.sum()
    return float((hits / np.arange(1, len(order) + 1))[enough].max())


if __name__ == "__main__":
    main()
