"""What networks of a run say about the labels of images that they didn't learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from tuner.errors import RunFolderError, StudyError, TrialError
from tuner.first_study.likeness import groups_of, near_pairs
from tuner.first_study.pictures import SMALL
from tuner.history.checkpoints import CheckpointStore
from tuner.history.combination import Candidate, pool
from tuner.inspection.networks import Pool
from tuner.label_errors.confident_learning import Answers, Labels
from tuner.lifecycle.resumption import as_driven
from tuner.lifecycle.study_changes import check_comparable
from tuner.machine.temporary import OwnedFolder
from tuner.results.declaring import declared_study
from tuner.results.run import RecordedRun
from tuner.study.declaration import Study
from tuner.train.data.images import read_image
from tuner.train.data.splits import HeldSplit, Split, Splits, in_chunks
from tuner.trial import ImageClassifier
from tuner.trial.pixels import NO_DEEP, DeepScale
from tuner.trial.tasks import ONE_LABEL

AT_ONCE = 256  # images whose thumbnails are computed at once


@dataclass(frozen=True)
class Judgement:
    """Images for validation with their labels, and what networks answer that didn't learn from them.

    Attributes:
        classes: names of the classes
        names: of the images [N]: their files, as messages name them; if they aren't files, their numbers in the data
        labels: [N], indices of classes
        answers: [N, L], the mean probabilities of all trials
        trials: whose networks answered, the winner first
        images: of the whole data set
        folds: whether all images but those for the test are for validation
        parts: the images as networks take them, in order
        files: where the images are, by their names; none if they aren't files
        scale: of the deep images among them
        alike: groups of near duplicates of different classes, as indices; none if images aren't files
    """

    classes: tuple[str, ...]
    names: Sequence[str]
    labels: Labels
    answers: Answers
    trials: tuple[str, ...]
    images: int
    folds: bool
    parts: Sequence[Split]
    files: Mapping[str, Path] = field(default_factory=dict)
    scale: DeepScale = NO_DEEP
    alike: Sequence[Sequence[int]] = ()

    def image(self, index: int) -> Tensor:
        """An image [C, H, W], uint8 or float32: the whole file, or what networks take if there is none."""
        if self.files:
            return read_image(self.files[self.names[index]], scale=self.scale)
        for split in self.parts:
            if index < len(split):
                return split.images(torch.tensor([index]))[0]
            index -= len(split)
        raise IndexError(index)


def study_of(run: RecordedRun, study: Study | None, *, trust: bool) -> tuple[Study, ImageClassifier]:
    """The run's study and its trial, of images with one label each; `study` for a run that began in Python.

    Raises:
        RunFolderError: the study is needed, or the study file is another user's.
        StudyError: the trials are others, or the study can't be read any more.
    """
    if run.info["asked"]:
        raise RunFolderError(
            "labels needs trials that tuner trains, got a search whose trials your own program asks for; compare the "
            "answers of your networks with the labels there"
        )
    if study is None and run.info["study_file"] is None:
        raise RunFolderError(
            f"labels needs the study of a run that was started from Python, got {run.path!r} alone; "
            f"call tuner.find_label_errors({run.path!r}, study=study)"
        )
    found = as_driven(run, study or declared_study(run, trust=trust), run.info["options"])[0]
    trial = found.declared_trial
    if not isinstance(trial, ImageClassifier):
        raise StudyError(
            f"labels needs an ImageClassifier, whose networks tuner knows, got {trial.described}; compare the answers "
            "of your networks with the labels in your own program"
        )
    if trial.label_task is not ONE_LABEL:
        raise StudyError(
            f"labels needs images with one label each, got {trial.source.name}, whose images have "
            f"{trial.label_task.described} each; look at the worst mistakes in the report"
        )
    return found, trial


def judge(
    run: RecordedRun, study: Study | None = None, *, trust: bool = False, device: torch.device | str | None = None
) -> Judgement:
    """Let the networks of a run's good trials answer the images for validation, as `tuner combine` does.

    Args:
        run: whose trials
        study: needed if the run was started from Python and not from a file
        trust: run the study file of a run that belongs to another user
        device: where to compute; None for a GPU if there is one

    Raises:
        RunFolderError: no network of a trial that was trained to its end is kept; the data has changed; the study is
            needed.
        StudyError: as `study_of`.
        DataError: the data is missing or damaged.
    """
    found, trial = study_of(run, study, trust=trust)
    check_comparable(found, run.info, "the study" if study else run.path)
    with OwnedFolder("labels") as temporary:
        members = _candidates(run, found, temporary)
        if not members:
            raise RunFolderError(
                f"labels needs the network of a trial that was trained to its end, got {run.path!r}, which has kept "
                "none; let a trial be trained to its end"
            )
        where = device or ("cuda" if torch.cuda.is_available() else "cpu")
        networks = Pool(trial, members, found.seed, where)
    if networks.outputs is None:
        raise RunFolderError(f"labels needs validation images, got {run.path!r} with none; use validation=Folds(5)")
    parts = [splits.validation for splits in networks.parts]
    labels = networks.labels.numpy()
    whole, images = networks.splits, trial.image_files
    return Judgement(
        whole.classes,
        [name for splits in networks.parts for name in _names(splits)],
        labels,
        networks.outputs.double().softmax(-1).mean(0).numpy(),
        tuple(one.trial for one in networks.members),
        len(whole.test) + (len(labels) if trial.folds else len(whole.train) + len(whole.validation)),
        trial.folds > 0,
        parts,
        {images.relative(item.file): item.path for item in images.look().items} if images else {},
        whole.scale,
        _alike(parts, labels) if images else (),
    )


def _candidates(run: RecordedRun, study: Study, temporary: Path) -> list[Candidate]:
    """The good trials whose networks are still there, the best first."""
    store, found = CheckpointStore(run.folder), []
    known = pool(run.record)
    for trial, epoch in known if study.second is None else known[:1]:  # a front also has the worst ones
        with suppress(TrialError):
            folder = store.fetch(trial.trial, epoch, temporary / trial.trial)
            found.append(Candidate(trial.trial, epoch, study.search_space.restored(trial.config), folder))
    return found


def _names(splits: Splits) -> Sequence[str]:
    split = splits.validation
    rows = split.pool_rows if isinstance(split, HeldSplit) else torch.arange(len(split))
    return splits.files("validation") or [str(row) for row in rows.tolist()]


def _alike(parts: Sequence[Split], labels: Labels) -> list[list[int]]:
    """Groups of near duplicates with different labels."""
    small = [
        adaptive_avg_pool2d(split.images(rows).float(), SMALL).round().to(torch.uint8)
        for split in parts
        for rows in in_chunks(len(split), AT_ONCE)
    ]
    thumbnails = torch.cat(small).expand(-1, 3, -1, -1).permute(0, 2, 3, 1).numpy()
    pairs = near_pairs(np.ascontiguousarray(thumbnails))[0]
    return [group for group in groups_of(pairs.tolist()) if len(set(labels[group].tolist())) > 1]
