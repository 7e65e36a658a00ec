"""A cheap function, to keep what a run looks like."""

from tuner import ASHA, Budget, Random, Study, choice, loguniform, report, uniform


def train(config):
    for epoch in range(1, 10):
        report(loss=abs(config["lr"] - 0.01) * 10 + (config["kind"] == "b") * config.get("momentum", 0) + 1 / epoch)


study = Study(
    "format-1",
    trial=train,
    space={"lr": loguniform(1e-4, 1e-1), "kind": choice(["a", "b"]), "momentum": uniform(0, 1).when(kind="b")},
    metric="loss",
    mode="min",
    search=Random(),
    scheduler=ASHA(),
    budget=Budget(trials=6, max_epochs=9),
)
