"""Every scheduler, for the tests that take them all: a new one is added to each list here, and nowhere else."""

from tuner.schedule import ASHA, HyperBand, MedianStopping, NoEarlyStopping, Scheduler

EACH: list[Scheduler] = [
    NoEarlyStopping(),
    ASHA(),
    ASHA(rule="stop", reduction_factor=4),
    HyperBand(),
    MedianStopping(min_trials=2),
]
COMPARING = EACH  # those that look at other trials, too
EAGER: list[Scheduler] = [  # that decide in the first epochs of a few trials
    ASHA(grace_epochs=2, reduction_factor=2),
    ASHA(grace_epochs=1, rule="stop"),
    HyperBand(grace_epochs=1, reduction_factor=2),
    MedianStopping(grace_epochs=3, min_trials=1),
    MedianStopping(grace_epochs=1, min_trials=2),
    NoEarlyStopping(),
]


def each_with(grace: int, factor: int) -> list[Scheduler]:
    """Each with these settings, as far as it has them; the default one twice, to be drawn more often."""
    return [
        ASHA(grace, factor),
        ASHA(grace, factor),
        ASHA(grace, factor, rule="stop"),
        HyperBand(grace, factor),
        MedianStopping(grace, min_trials=2),
        NoEarlyStopping(),
    ]
