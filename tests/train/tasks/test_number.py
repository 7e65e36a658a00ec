"""Numbers: losses and metrics held against torch's, scikit-learn's and scipy's."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics as sklearn
from torch.nn import functional as F

from tuner.errors import DataError
from tuner.inspection.tasks.number import NumberAnswers
from tuner.train.tasks.number import NumberTargets
from tuner.trial.tasks import NUMBER

LABELS = torch.randn(50, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 40 + 1990
OUTPUTS = torch.randn(50, 1, generator=torch.Generator().manual_seed(1)) / 2 + ((LABELS - 1990) / 40).float()
TARGETS = NumberTargets.of(("year",), LABELS)


def test_numbers_are_standardised_by_those_of_training() -> None:
    assert (TARGETS.mean, TARGETS.deviation) == pytest.approx((float(LABELS.mean()), float(LABELS.numpy().std())))
    assert TARGETS.answers(torch.zeros(1, 1)).item() == pytest.approx(TARGETS.mean, rel=1e-6)
    same = NumberTargets.of(("year",), torch.full((3, 1), 7.0))
    assert (same.mean, same.deviation) == (7.0, 1.0)


def test_each_metric_is_what_scikit_learn_says_in_the_users_unit() -> None:
    said, true = (OUTPUTS.double() * TARGETS.deviation + TARGETS.mean)[:, 0].numpy(), LABELS[:, 0].numpy()
    found = TARGETS.metrics(OUTPUTS, LABELS, list(NUMBER.named.values()))
    assert dict(found.values) == pytest.approx(
        {
            "mae": sklearn.mean_absolute_error(true, said),
            "rmse": sklearn.root_mean_squared_error(true, said),
            "r2": sklearn.r2_score(true, said),
            "loss": sklearn.mean_squared_error(true, said) / TARGETS.deviation**2,
            "spearman": stats.spearmanr(true, said).statistic,
            "pearson": stats.pearsonr(true, said).statistic,
        },
        abs=1e-4,
    )


@pytest.mark.parametrize(("kind", "loss"), [("mse", F.mse_loss), ("mae", F.l1_loss), ("huber", F.huber_loss)])
def test_the_loss_is_torchs_of_standardised_numbers(kind: str, loss: object) -> None:
    objective = TARGETS.objective({"loss": kind}, LABELS, weighted=False)
    standardised = ((LABELS - LABELS.mean()) / LABELS.std(correction=0)).float()
    parts = sum(objective.total(OUTPUTS[part], LABELS[part]) for part in (slice(0, 20), slice(20, 50)))
    assert float(parts / objective.weight(LABELS)) == pytest.approx(float(loss(OUTPUTS, standardised)), rel=1e-5)  # type: ignore[operator]
    weights = torch.ones(50, 1, dtype=torch.float64) * torch.tensor([2.0, *[1.0] * 49])[:, None]
    weighted = TARGETS.objective({"loss": kind}, LABELS, weighted=True)
    twice = weighted.total(OUTPUTS, torch.cat([LABELS, weights], 1)) - objective.total(OUTPUTS, LABELS)
    assert float(twice) == pytest.approx(float(objective.total(OUTPUTS[:1], LABELS[:1])), abs=1e-5)


def test_half_precision_learns_the_same_numbers() -> None:
    objective = TARGETS.objective({"loss": "mse"}, LABELS, weighted=False)
    assert float(objective.total(OUTPUTS.bfloat16(), LABELS)) == pytest.approx(
        float(objective.total(OUTPUTS, LABELS)), rel=0.05
    )


def test_several_networks_answer_with_their_mean() -> None:
    assert NumberTargets.together(torch.tensor([[[1.0]], [[2.0]]]), torch.tensor([0.25, 0.75])).tolist() == [[1.75]]


def test_predictions_have_the_interval_of_validation_errors() -> None:
    learnt = NumberAnswers(TARGETS).learn((OUTPUTS, LABELS))
    errors = (LABELS - TARGETS.answers(OUTPUTS.double()))[:, 0].numpy()
    assert (learnt["low"], learnt["high"]) == pytest.approx(tuple(np.quantile(errors, [0.05, 0.95])))
    answers = NumberAnswers(TARGETS.with_facts(learnt))
    told = answers.prediction("a.png", [2000.0])  # type: ignore[arg-type]
    assert told.cells == (2000.0, 2000.0 + learnt["low"], 2000.0 + learnt["high"])
    assert TARGETS.with_facts(answers.targets.facts()) == answers.targets
    assert NumberAnswers(TARGETS).learn((OUTPUTS[:10], LABELS[:10])) == {}
    assert NumberAnswers(TARGETS).prediction("a.png", [2000.0]).cells == (2000.0, "", "")  # type: ignore[arg-type]


@pytest.mark.parametrize("labels", [[1.0, math.nan], [[1.0, 2.0]], [math.inf]])
def test_labels_of_a_function_that_are_no_numbers_are_refused(labels: object) -> None:
    with pytest.raises(DataError, match=r"labels must be finite numbers, \[N\], got \["):
        NumberTargets.given(labels, "training")
