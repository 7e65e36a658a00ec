"""Fashion-MNIST: the published recipe to beat. Its best configuration reached 0.9144 on the test split, with ImageNet
weights; a run that starts from other weights is no comparison."""

from tuner import ASHA, Budget, ImageClassifier, MultiFidelityGP, Resources, Study, choice, loguniform, randint

study = Study(
    name="fashion-resnet18",
    trial=ImageClassifier(data="fashion-mnist", model="resnet18", weights="imagenet"),
    space={
        "image_size": 28,
        "epochs": randint(4, 10),
        "lr": loguniform(1e-4, 1e-3),
        "batch_size": choice([32, 64, 128]),
    },
    metric="val_accuracy",
    mode="max",
    search=MultiFidelityGP(),
    scheduler=ASHA(grace_epochs=3, reduction_factor=3),
    budget=Budget(trials=10, max_epochs=9),
    resources=Resources(cpus=1),
    start_from=[{"epochs": 9, "lr": 9.3e-4, "batch_size": 32}],
    seed=0,
)
