"""Which labels are probably wrong, from answers of networks that didn't learn from the images.

The thresholds are those of confident learning (Northcutt, Jiang and Chuang 2021, "Confident Learning: Estimating
Uncertainty in Dataset Labels"), and labels are ranked by their self-confidence. How many are listed doesn't follow from
the counts of that method's confident joint, which listed three to four times as many, four fifths of them rightly
labelled (`benchmarks/labels.py`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

DOUBTED = 0.9  # confidence from which a label counts as wrong

Answers = npt.NDArray[np.float64]  # [N, L] probabilities
Labels = npt.NDArray[np.int64]  # [N]


def confidences(answers: Answers, labels: Labels) -> npt.NDArray[np.float64]:
    """How surely each label is wrong, [N] from 0 to 1.

    That is 1 less the label's probability, as a share of the mean probability of right and wrong labels of its class.
    """
    own = answers[np.arange(len(labels)), labels]
    images = np.bincount(labels, minlength=answers.shape[1])
    usual = np.bincount(labels, own, minlength=answers.shape[1]) / np.maximum(1, images)
    return np.clip(1 - own / np.maximum(usual[labels], np.finfo(float).tiny), 0, 1)


def doubted(answers: Answers, labels: Labels) -> Labels:
    """The class that each image more probably is of, [N]; its label where there is too little reason to doubt that."""
    return np.where(confidences(answers, labels) >= DOUBTED, answers.argmax(1), labels)
