"""Handwritten digits: the demo. A ResNet18 from random weights on scikit-learn's 1,797 images, no download needed."""

from tuner import ASHA, Budget, HyperOpt, ImageClassifier, Resources, Study, choice, loguniform, uniform

study = Study(
    name="digits",
    trial=ImageClassifier(data="digits", model="resnet18", weights=None),
    space={
        "lr": loguniform(1e-4, 1e-2),
        "batch_size": choice([16, 32, 64]),
        "optimizer": choice(["adam", "sgd"]),
        "momentum": uniform(0.8, 0.99).when(optimizer="sgd"),
        "label_smoothing": choice([0.0, 0.1]),
    },
    metric="val_accuracy",
    mode="max",
    search=HyperOpt(),
    scheduler=ASHA(grace_epochs=2, reduction_factor=3),
    budget=Budget(trials=10, max_epochs=6),
    resources=Resources(cpus=1),
    seed=0,
)
