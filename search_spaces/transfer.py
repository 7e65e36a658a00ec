"""Fashion-MNIST: how far should an ImageNet ResNet18 move, and how fast?"""

from tuner import ASHA, Budget, HyperOpt, ImageClassifier, Resources, Study, choice, loguniform, uniform

study = Study(
    name="transfer",
    trial=ImageClassifier(data="fashion-mnist", model="resnet18", weights="imagenet"),
    space={
        "image_size": 28,
        "finetune": choice(["all", "head", "gradual"]),
        "stem": "sum",
        "lr": loguniform(1e-4, 1e-1),
        "backbone_lr_scale": loguniform(0.01, 1).when(finetune=["all", "gradual"]),
        "batch_size": choice([32, 64, 128]),
        "optimizer": choice(["adamw", "sgd"]),
        "momentum": uniform(0.8, 0.99).when(optimizer="sgd"),
        "weight_decay": loguniform(1e-5, 1e-1),
        "schedule": choice(["constant", "cosine", "one-cycle"]),
    },
    metric="val_accuracy",
    mode="max",
    search=HyperOpt(),
    scheduler=ASHA(grace_epochs=3, reduction_factor=3),
    budget=Budget(total_epochs=180, max_epochs=9, hours=2.0),
    resources=Resources(cpus=1),
    seed=0,
)
