import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR

from tuner.train.optimisation.schedule import Schedule
from tuner.trial import ImageClassifier

EPOCHS = 10


def torchs(make: type[OneCycleLR] | type[CosineAnnealingLR], **options: float) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = make(optimizer, **options)  # type: ignore[arg-type]
    rates = []
    for _ in range(EPOCHS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def test_constant_is_constant_and_warm_up_rises_to_it() -> None:
    assert [Schedule("constant", EPOCHS)(done) for done in (0, 3.5, 10)] == [1, 1, 1]
    warm = Schedule("constant", EPOCHS, warmup_epochs=2)
    assert [warm(done) for done in (0, 0.5, 1, 2, 9)] == [0, 0.25, 0.5, 1, 1]


def test_cosine_is_torchs() -> None:
    schedule = Schedule("cosine", EPOCHS)
    assert [schedule(epoch) for epoch in range(EPOCHS)] == pytest.approx(torchs(CosineAnnealingLR, T_max=EPOCHS))
    assert schedule(EPOCHS) == pytest.approx(0)


def test_cosine_begins_after_the_warm_up() -> None:
    schedule = Schedule("cosine", EPOCHS, warmup_epochs=4)
    assert [schedule(done) for done in (2, 4, 7, 10)] == pytest.approx([0.5, 1, 0.5, 0])


def test_one_cycle_is_torchs() -> None:
    rates = torchs(OneCycleLR, max_lr=1.0, total_steps=EPOCHS + 1, pct_start=4 / (EPOCHS + 1), cycle_momentum=False)
    schedule = Schedule("one-cycle", EPOCHS, warmup_epochs=3)
    assert [schedule(epoch) for epoch in range(EPOCHS)] == pytest.approx(rates)
    assert Schedule("one-cycle", EPOCHS)(3) == 1


def test_step_falls_every_so_many_epochs() -> None:
    schedule = Schedule("step", EPOCHS, step_epochs=4, step_factor=0.5)
    assert [schedule(done) for done in (0, 3.99, 4, 8, 9)] == [1, 1, 0.5, 0.25, 0.25]


@pytest.mark.parametrize(("epochs", "every"), [(9, 3), (10, 4), (1, 1)])
def test_step_falls_twice_in_a_trial_by_default(epochs: int, every: int) -> None:
    chosen = ImageClassifier().hyperparameters({"schedule": "step"})
    assert Schedule.of(chosen, epochs).step_epochs == every


@pytest.mark.parametrize("kind", ["constant", "cosine", "one-cycle", "step"])
@pytest.mark.parametrize("warmup", [0, 0.5, 20])
def test_every_schedule_stays_within_0_and_1(kind: str, warmup: float) -> None:
    schedule = Schedule(kind, 3, warmup_epochs=warmup)
    assert all(0 <= schedule(done / 7) <= 1 for done in range(22))


@pytest.mark.parametrize("kind", ["constant", "cosine", "one-cycle", "step"])
def test_a_probe_has_the_schedule_for_itself_and_so_have_the_epochs_after_it(kind: str) -> None:
    chosen = ImageClassifier().hyperparameters({"schedule": kind, "lr": 1e-3, "probe_lr": 1e-2, "warmup_epochs": 1.0})
    whole = Schedule.of(chosen, EPOCHS, probe=4)
    plain = {**chosen, "probe_lr": None}
    rest, probe = Schedule.of(plain, 6), Schedule.of({**plain, "warmup_epochs": 0.0}, 4)
    assert [whole(4 + done) for done in (0, 0.5, 3, 6)] == pytest.approx([rest(done) for done in (0, 0.5, 3, 6)])
    assert [whole(done) for done in (0, 1.5, 3.9)] == pytest.approx([10 * probe(done) for done in (0, 1.5, 3.9)])
