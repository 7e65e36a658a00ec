"""The best trials of a search as one model that averages their answers, if validation images show that it pays.

Which trials count, and how much, is chosen greedily with replacement by the loss of the averaged answers to validation
images (Caruana et al. 2004, "Ensemble selection from libraries of models"), several times on images drawn with
replacement, so that chance decides less. Before that the outputs of each are scaled until they are as sure as they are
right; else the surest would count for more than the best (Rahaman and Thiery 2021, "Uncertainty quantification and deep
ensembles"). What the average gains is measured by choosing and scaling again on four fifths of these images and looking
at the others, beside the candidate that wins on the same four fifths: the winner looks better than it is on the images
by which it was chosen. In a cross-validation, answers to an image are those of networks that didn't learn from it.

Scaling alone often lowers the winner's loss, and so does one network with the mean of the weights of several, a soup,
which costs no more time. What pays and has the least loss ships; the scaled winner and the soup do as plain networks,
but for a function's and those of a cross-validation. Where it is asked for, a network with the winner's layers learns
from the average.

Trials whose layers before the head are the same, as with `finetune="head"`, share these, so they cost hardly more time
than one of them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tuner.errors import DataError
from tuner.history.combination import AUTO, DISTILLED, ENSEMBLE, LOSS, SOUP, Candidate
from tuner.inspection.best import write_best
from tuner.inspection.networks import Pool, Trained
from tuner.inspection.scoring import Score, paired_gain, score_of
from tuner.train.cross_validation import NORMAL_90
from tuner.train.distillation import train_student
from tuner.train.tasks import Targets
from tuner.trial import ImageClassifier
from tuner.trial.tasks import ONE_LABEL

ROUNDS, BAGS, NESTED = 20, 20, 5
MOST_TIMES, MANY = 3, 600  # how often images are parted, and of how many altogether, so that chance decides less
AT_ONCE = 10_000_000  # numbers of a tensor in which several draws of images are looked at together
LEAST_SHARE = 0.05  # of a trial in the answers; those with less are left out
LEAST_GAIN = 0.02  # of the winner's loss; less isn't worth another model
MOST_SCALED = 2_000  # images, to which factors of outputs are fitted
TIMED = 5  # answers to one image, of which the median time is told
ROUNDING = 1e-9
SCALED = "scaled"
WAYS = SCALED, SOUP, ENSEMBLE
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
        record: becomes metrics.json, see `write_best`; "asked" of its "combined" is one of `COMBINATIONS`,
            "metric" the one by which the winner was chosen
        split_seed: of the study
        device: where to compute
    """
    winner, how, metric = candidates[0], record["combined"]["asked"], record["combined"].get("metric")
    pool = Pool(trial, candidates, split_seed, device)
    own = score_of(trial.of(winner.config), pool.winner(), device)
    if pool.outputs is None:
        raise DataError("combine needs validation images to choose by, got data without any")
    of: list[tuple[int, ...]] = [(number,) for number in range(len(pool.members))]  # whose mean each network is
    if how in (AUTO, SOUP) and (several := pool.mix()):
        of.append(several)
    judged: dict[str, Any] = {"seed": split_seed, "by_loss": metric == LOSS}
    average, length = None, {}
    if how == DISTILLED and len(pool.members) > 1:
        average = found_among(pool.outputs, pool.labels, pool.splits.targets, how=ENSEMBLE, **judged)
        length = {"epochs": record["combined"]["epochs"]}
        pool = _with_student(
            trial, candidates, pool.teacher(average.shares, average.scales), split_seed, device, **length
        )
    outputs, one_more = pool.outputs, average is not None or len(of[-1]) > 1
    assert outputs is not None
    found = found_among(outputs, pool.labels, pool.splits.targets, soup=one_more, how=how, **judged)
    told: dict[str, Any] = {
        **{"asked": how, "metric": metric, **length},
        **found.told,
        "candidates": len(candidates) - len(pool.left_out),
        "left_out": list(pool.left_out),
    }
    if not found.pays and found.way != how:
        write_best(best, trial, winner.config, own, dict(record) | {"combined": told | {"in": False}})
        return
    model = pool.averaged(found.shares, found.scales)
    scored = score_of(trial.of(winner.config), model, device)
    gain, error = paired_gain(own.goodness, scored.goodness)
    task = scored.answers.targets.task
    told |= {
        "in": True,
        "members": _members(pool, average or found, of),
        "own": {**own.test.by_name("test"), "metric": task.paired, "gain": gain, "error": error},
        "classes": _by_class(own, scored) if found.way != SCALED else [],
        "cost": _cost(model, own.model),
    }
    write_best(best, trial, winner.config, scored, dict(record) | {"combined": told})
    write_best(best / SINGLE, trial, winner.config, own, {name: record[name] for name in record if name != "combined"})


def _with_student(
    trial: ImageClassifier,
    candidates: Sequence[Candidate],
    teacher: nn.Module,
    split_seed: int,
    device: torch.device | str,
    *,
    epochs: int,
) -> Pool:
    """The candidates, and a network of the winner's configuration, by its name, that has learned from a teacher."""
    with tempfile.TemporaryDirectory() as folder:
        student = replace(candidates[0], checkpoint=Path(folder))
        how: dict[str, Any] = {"epochs": epochs, "split_seed": split_seed, "device": device}
        train_student(trial, student.config, teacher, student.checkpoint, **how)
        return Pool(trial, [*candidates, student], split_seed, device)


def _members(pool: Pool, found: Found, of: Sequence[tuple[int, ...]]) -> list[dict[str, Any]]:
    """The trials with a share, in the answers or in the weights; `of` says of which trials each network is the mean."""
    return [
        {
            **{"trial": pool.members[one].trial, "epoch": pool.members[one].epoch},
            **{"share": share / len(several), "scale": scale},
        }
        for several, share, scale in zip(of, found.shares.tolist(), found.scales.tolist(), strict=True)
        for one in several
        if share > 0
    ]


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
        way: one of `WAYS`, or DISTILLED
        shares: [M] float64 of the candidates, the winner first; their sum is 1
        scales: [M] float64, factors of their outputs, see `Targets.scales`
        loss: the mean loss of the winner, not scaled, or for an average of candidates that win without the images
        gain, error: mean loss less than the winner's, paired by images, and its standard error
        better, better_error: the same of how good answers are, see `Targets.goodness`
        images: how many validation images there are
    """

    way: str
    shares: Tensor
    scales: Tensor
    loss: float
    gain: float
    error: float
    better: float
    better_error: float
    images: int

    @property
    def pays(self) -> bool:
        """Whether the gain matters and is none of chance, and no fewer answers are right beyond chance."""
        sure = self.gain - NORMAL_90 * self.error > 0 and self.gain >= LEAST_GAIN * self.loss
        return sure and self.better + NORMAL_90 * self.better_error >= 0

    @property
    def told(self) -> dict[str, Any]:
        """As plain data."""
        names = ("way", "loss", "gain", "error", "better", "better_error", "images")
        return {name: getattr(self, name) for name in names} | {"pays": self.pays}


def found_among(
    outputs: Tensor,
    labels: Tensor,
    targets: Targets,
    *,
    seed: int,
    soup: bool = False,
    how: str = AUTO,
    by_loss: bool = False,
) -> Found:
    """Choose among candidates, the winner first, by their outputs [M, N, L] for N validation images with labels.

    Found is, of what pays, the one with the least loss: the winner scaled, the last one if it is a `soup`, or an
    average of several others. `how` may ask for one of the latter two in any case; the scaled winner is found if there
    is none. A network that learned from the others is judged as a soup is.

    The winner was chosen on these images, which make it look better than it is. So an average, which is tried on
    images that its choice hasn't seen, is compared with the candidate that wins without these: one with the best
    answers, or the least loss if the study went `by_loss`. Where even the winner as it looks has a higher loss, the
    average is compared with it.
    """
    generator, count = np.random.default_rng(seed), len(outputs) - soup
    everything = torch.ones(len(labels), dtype=torch.bool)
    alone = targets.losses(targets.merits(outputs[:count], labels))
    right = torch.stack([targets.goodness(one, labels) for one in outputs[:count]])
    before, after = (_Judged(*torch.zeros(2, len(WAYS) + 1, len(labels), dtype=torch.float64)) for _ in range(2))
    times = max(1, min(MOST_TIMES, MANY // len(labels)))
    for part in (part for _ in range(times) for part in _parts(len(labels), generator)):
        rest = everything.clone()
        rest[part] = False
        scaled, merits, _, (single, mixed, average) = _chosen(outputs, labels, rest, targets, count, generator)
        first = _winner(alone[:, rest], right[:, rest], by_loss)
        again = torch.zeros_like(single)
        again[first] = 1
        for row, (own, shares) in enumerate(((0, single), (0, mixed), (first, average), (first, again))):
            before.add(row, part, alone[own, part] / times, right[own, part] / times)
            losses = targets.losses((merits[:, part] * shares[:, None, None]).sum(0))
            answered = targets.goodness(targets.together(scaled[:, part], shares.float()), labels[part])
            after.add(row, part, losses / times, answered / times)
    *_, scales, chosen = _chosen(outputs, labels, everything, targets, count, generator)
    ways, winner = {}, WAYS.index(SCALED)
    last = DISTILLED if how == DISTILLED else SOUP
    for row, (way, shares) in enumerate(zip((SCALED, last, ENSEMBLE), chosen, strict=True)):
        rival = row if before.loss(row) >= before.loss(winner) else winner
        gain = paired_gain(after.losses[row], before.losses[rival])
        better = paired_gain(before.right[rival], after.right[row])
        one = Found(way, shares, scales, before.loss(rival), *gain, *better, len(labels))
        if way == SCALED or (soup if way == last else (shares > 0).sum() > 1):
            ways[way] = one
    if how in ways:
        return ways[how]
    if how != AUTO:
        return ways[SCALED]
    reached = {way: after.loss(row) for row, way in enumerate(WAYS)}
    reached[SCALED] = max(reached[SCALED], after.loss(-1))  # the winner may look too good
    paying = [one for one in ways.values() if one.pays]
    return min(paying, key=lambda one: reached[one.way]) if paying else ways.get(ENSEMBLE, ways[SCALED])


@dataclass(frozen=True)
class _Judged:
    """Losses, and how good answers are, [R, N] of R ways for each image."""

    losses: Tensor
    right: Tensor

    def add(self, row: int, part: Tensor, losses: Tensor, right: Tensor) -> None:
        self.losses[row, part] += losses
        self.right[row, part] += right

    def loss(self, row: int) -> float:
        return float(self.losses[row].mean())


def _parts(images: int, generator: np.random.Generator) -> list[Tensor]:
    return [torch.from_numpy(part) for part in np.array_split(generator.permutation(images), min(NESTED, images))]


def _winner(losses: Tensor, right: Tensor, by_loss: bool) -> int:
    """Which candidate would win, of losses [M, S] of images and of how good the answers to them are [M, S].

    Of those whose answers are as good as the best within a standard error it is the one with the least loss: what
    decides between them is chance, and the loss of one that chance made win may be far from the winner's.
    """
    behind = right[right.mean(1).argmax()] - right
    as_good = behind.mean(1) <= behind.std(1, unbiased=False) / behind.shape[1] ** 0.5
    means = losses.mean(1)
    return int((means if by_loss else means.masked_fill(~as_good, torch.inf)).argmin())


def _chosen(
    outputs: Tensor, labels: Tensor, seen: Tensor, targets: Targets, count: int, generator: np.random.Generator
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Outputs scaled, their merits, the factors, and the shares [M] for each of `WAYS`, by images of `seen` [N]."""
    scaled, scales = _scaled(outputs, labels, seen, targets)
    merits = targets.merits(scaled, labels)
    alone, soup, average = torch.zeros(len(WAYS), len(outputs), dtype=torch.float64)
    alone[0] = soup[-1] = 1
    average[:count] = chosen_shares(merits[:count, seen], targets.losses, generator)
    return scaled, merits, scales, [alone, soup, average]


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
