"""The best trials of a search as one model that averages their answers, if validation images show that it pays.

Which trials count, and how much, is chosen greedily with replacement by the loss of the averaged answers to validation
images (Caruana et al. 2004, "Ensemble selection from libraries of models"), several times on images drawn with
replacement, so that chance decides less. Before that the outputs of each are scaled until they are as sure as they are
right; else the surest would count for more than the best (Rahaman and Thiery 2021, "Uncertainty quantification and deep
ensembles"). What the average gains over the winner, which else ships as it is, is measured by choosing and scaling
again on four fifths of these images and looking at the others. In a cross-validation, answers to an image are those of
networks that didn't learn from it.

Scaling alone often lowers the winner's loss. So an average has to gain more than that; if none does, the winner ships
scaled if that pays, as an average of one.

Trials whose layers before the head are the same, as with `finetune="head"`, share these, so they cost hardly more time
than one of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tuner.errors import DataError
from tuner.history.combination import Candidate, must_pay
from tuner.inspection.best import write_best
from tuner.inspection.networks import Pool, Trained
from tuner.inspection.scoring import Score, paired_gain, score_of
from tuner.train.cross_validation import NORMAL_90
from tuner.train.tasks import Targets
from tuner.trial import ImageClassifier
from tuner.trial.tasks import ONE_LABEL

ROUNDS, BAGS, NESTED = 20, 20, 5
AT_ONCE = 10_000_000  # numbers of a tensor in which several draws of images are looked at together
LEAST_SHARE = 0.05  # of a trial in the answers; those with less are left out
LEAST_GAIN = 0.02  # of the winner's loss; less isn't worth another model
MOST_SCALED = 2_000  # images, to which factors of outputs are fitted
TIMED = 5  # answers to one image, of which the median time is told
ROUNDING = 1e-9
RIVALS = WINNER, SCALED, AVERAGE = range(3)
SINGLE = "single"  # folder in `best/` of the winner's own model

Losses = Callable[[Tensor], Tensor]  # see `Targets.losses`


def write_combined(
    trial: ImageClassifier,
    candidates: Sequence[Candidate],
    best: Path,
    *,
    record: Mapping[str, Any],
    split_seed: int,
    device: torch.device | str = "cpu",
) -> None:
    """Write `best/` with the average of the candidates' answers, with the winner scaled, or as it is, by what matters.

    The averaged model takes images of the largest size that one of its networks has; others get them resized from
    these. The winner's own model is then in `single/`. "combined" in metrics.json says what was found.

    Args:
        trial: data and model as the study declares them
        candidates: the winner first
        best: folder to write
        record: becomes metrics.json, see `write_best`; "asked" of its "combined" is "auto" for an average that pays,
            "ensemble" for one in any case
        split_seed: of the study
        device: where to compute
    """
    winner, how = candidates[0], record["combined"]["asked"]
    pool = Pool(trial, candidates, split_seed, device)
    own = score_of(trial.of(winner.config), pool.winner(), device)
    if pool.outputs is None:
        raise DataError("combine needs validation images to choose by, got data without any")
    found = found_among(pool.outputs, pool.labels, pool.splits.targets, seed=split_seed, must_pay=must_pay(how))
    told: dict[str, Any] = {
        "asked": how,
        **found.told,
        "candidates": len(pool.members),
        "left_out": list(pool.left_out),
    }
    if not found.pays and (must_pay(how) or not found.several):
        write_best(best, trial, winner.config, own, dict(record) | {"combined": told | {"in": False}})
        return
    model = pool.averaged(found.shares, found.scales)
    scored = score_of(trial.of(winner.config), model, device)
    gain, error = paired_gain(own.goodness, scored.goodness)
    task = scored.answers.targets.task
    told |= {
        "in": True,
        "members": [
            {"trial": one.trial, "epoch": one.epoch, "share": float(share), "scale": float(scale)}
            for one, share, scale in zip(pool.members, found.shares, found.scales, strict=True)
            if share > 0
        ],
        "own": {**own.test.by_name("test"), "metric": task.paired, "gain": gain, "error": error},
        "classes": _by_class(own, scored) if found.several else [],
        "cost": _cost(model, own.model),
    }
    write_best(best, trial, winner.config, scored, dict(record) | {"combined": told})
    write_best(best / SINGLE, trial, winner.config, own, {name: record[name] for name in record if name != "combined"})


def _by_class(own: Score, average: Score) -> list[dict[str, Any]]:
    """For each class that test images have, how many, and the shares that both answer right; none of other tasks."""
    targets, labels = average.answers.targets, average.model.splits.test.labels
    if targets.task is not ONE_LABEL:
        return []
    return [
        {
            **{"class": str(name), "images": int(of_it.sum())},
            **{"own": float(own.goodness[of_it].mean()), "average": float(average.goodness[of_it].mean())},
        }
        for number, name in enumerate(targets.names)
        if (of_it := labels == number).any()
    ]


@dataclass(frozen=True)
class Found:
    """Which trials average best, and what that gains on validation images that the choice hasn't seen.

    Attributes:
        shares: [M] float64 of the candidates, the winner first; their sum is 1
        scales: [M] float64, factors of their outputs, see `Targets.scales`
        loss: the winner's mean loss, not scaled, as it would ship
        gain, error: mean loss less than the winner's, paired by images, and its standard error
        better, better_error: the same of how good answers are, see `Targets.goodness`
        images: how many validation images there are
    """

    shares: Tensor
    scales: Tensor
    loss: float
    gain: float
    error: float
    better: float
    better_error: float
    images: int

    @property
    def several(self) -> bool:
        """Whether more than one trial has a share."""
        return int((self.shares > 0).sum()) > 1

    @property
    def pays(self) -> bool:
        """Whether the gain matters and is none of chance, and no fewer answers are right beyond chance."""
        sure = self.gain - NORMAL_90 * self.error > 0 and self.gain >= LEAST_GAIN * self.loss
        return sure and self.better + NORMAL_90 * self.better_error >= 0

    @property
    def told(self) -> dict[str, Any]:
        """As plain data."""
        names = ("loss", "gain", "error", "better", "better_error", "images")
        return {name: getattr(self, name) for name in names} | {"pays": self.pays}


def found_among(outputs: Tensor, labels: Tensor, targets: Targets, *, seed: int, must_pay: bool = True) -> Found:
    """Choose among candidates, the winner first, by their outputs [M, N, L] for N validation images with labels.

    That is an average of several that pays, or with `must_pay` false any of several; else the winner scaled if that
    pays; else what pays nothing. Where both pay, it is the one that gains more.
    """
    generator = np.random.default_rng(seed)
    alone = torch.zeros(len(outputs), dtype=torch.float64)
    alone[0] = 1
    losses = targets.losses(targets.merits(outputs[:1], labels)).repeat(len(RIVALS), 1)
    good = targets.goodness(outputs[0], labels).repeat(len(RIVALS), 1)
    parts = np.array_split(generator.permutation(len(labels)), min(NESTED, len(labels)))
    for part in map(torch.from_numpy, parts):
        rest = torch.ones(len(labels), dtype=torch.bool)
        rest[part] = False
        scaled, _ = _scaled(outputs, labels, rest, targets)
        merits = targets.merits(scaled, labels)
        for row, shares in ((SCALED, alone), (AVERAGE, chosen_shares(merits[:, rest], targets.losses, generator))):
            losses[row, part] = targets.losses((merits[:, part] * shares[:, None, None]).sum(0))
            good[row, part] = targets.goodness(targets.together(scaled[:, part], shares.float()), labels[part])
    scaled, scales = _scaled(outputs, labels, torch.ones(len(labels), dtype=torch.bool), targets)
    shares = chosen_shares(targets.merits(scaled, labels), targets.losses, generator)

    def found(shares: Tensor, row: int, rival: int) -> Found:
        gain, better = paired_gain(losses[row], losses[rival]), paired_gain(good[rival], good[row])
        return Found(shares, scales, float(losses[rival].mean()), *gain, *better, len(labels))

    winner, average = found(alone, SCALED, WINNER), found(shares, AVERAGE, WINNER)
    pays = average.pays and (average.gain > winner.gain or not winner.pays)
    if average.several and (pays or not must_pay):
        return average
    return winner if winner.pays or not average.several else average


def _scaled(outputs: Tensor, labels: Tensor, seen: Tensor, targets: Targets) -> tuple[Tensor, Tensor]:
    """The outputs [M, N, L] times factors [M] that suit the images for which `seen` [N] is true, and these factors."""
    rows = seen.nonzero()[:, 0]
    rows = rows[:: max(1, len(rows) // MOST_SCALED)]  # from every class, as images may be sorted by it
    scales = targets.scales(outputs[:, rows], labels[rows])
    return outputs * scales.to(outputs)[:, None, None], scales


def chosen_shares(merits: Tensor, losses: Losses, generator: np.random.Generator) -> Tensor:
    """Shares [M] float64 of candidates in an average with a small loss, from their `Targets.merits` [M, N, J]."""
    count, images = merits.shape[:2]
    shares = torch.zeros(count, dtype=torch.float64)
    if images == 0:
        shares[0] = 1
        return shares
    drawn = [np.bincount(generator.integers(images, size=images), minlength=images) for _ in range(BAGS)]
    weights = torch.from_numpy(np.stack(drawn) / images)
    for some in torch.split(weights, max(1, AT_ONCE // merits.numel())):
        shares += _greedy(merits, losses, some).sum(0)
    shares /= shares.sum()
    shares[shares < min(LEAST_SHARE, float(shares.max()))] = 0
    return shares / shares.sum()


def _greedy(merits: Tensor, losses: Losses, weights: Tensor) -> Tensor:
    """How often candidates are taken, as shares [B, M], if each time the one is added whose average has the least loss.

    That is done B times, with weights [B, N] of the images.
    """
    bags, count = len(weights), len(merits)
    total, rows = merits.new_zeros(bags, *merits.shape[1:]), torch.arange(bags)
    taken, best = merits.new_zeros(bags, count), merits.new_zeros(bags, count)
    least = torch.full((bags,), torch.inf, dtype=torch.float64)
    for number in range(1, ROUNDS + 1):
        told = (losses((total[:, None] + merits) / number) * weights[:, None]).sum(2)
        lowest = told.min(1).values
        first = (told <= (lowest * (1 + ROUNDING))[:, None]).int().argmax(1)  # of equals the better trial
        total = total + merits[first]
        taken[rows, first] += 1
        lower = lowest < least
        least[lower], best[lower] = lowest[lower], taken[lower] / number
    return best


def _cost(model: Trained, own: Trained) -> dict[str, float]:
    """Milliseconds for an image and bytes of the averaged model, and of the winner's own."""
    return {
        "milliseconds": _milliseconds(model),
        "own_milliseconds": _milliseconds(own),
        "bytes": _bytes(model.module),
        "own_bytes": _bytes(own.module),
    }


def _milliseconds(model: Trained) -> float:
    """Median time of an answer to one image, as it is computed here."""
    splits, device = model.splits, next(model.module.parameters()).device
    images = splits.normalisation(splits.train.images(torch.zeros(1, dtype=torch.int64)).to(device))
    times = []
    with torch.inference_mode():
        for _ in range(TIMED + 1):
            start = time.perf_counter()
            model.module.eval()(images).cpu()
            times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[1:])


def _bytes(module: nn.Module) -> float:
    return float(sum(tensor.numel() * tensor.element_size() for tensor in module.state_dict().values()))
