"""Handwritten digits: the demo. A ResNet18 from random weights on scikit-learn's 1,797 images, no download needed."""

from tuner import ASHA, Budget, HyperOpt, ImageClassifier, Resources, Study, choice, loguniform, uniform

study = Study(
    name="digits",
    trial=ImageClassifier(data="digits", model="resnet18", weights=None),
    space={
        "lr": loguniform(1e-4, 3e-3),
        "batch_size": choice([32, 64, 128]),
        "optimizer": choice(["adam", "sgd"]),
        "momentum": uniform(0.8, 0.99).when(optimizer="sgd"),
        "label_smoothing": choice([0.0, 0.1]),
        "image_size": 16,
    },
    metric="val_accuracy",
    mode="max",
    search=HyperOpt(),
    scheduler=ASHA(grace_epochs=2, reduction_factor=3),
    budget=Budget(trials=10, max_epochs=5),
    resources=Resources(cpus=1),
    start_from=[{"lr": 5e-4, "batch_size": 64, "optimizer": "adam"}],
    seed=0,
)
