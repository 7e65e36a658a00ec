"""Photos of your own, a class per subfolder of `photos/`: which network, and how far should it move?

`python -m tuner init photos` writes such a study for your images and your machine, with a reason for each line.
"""

from tuner import Budget, ImageClassifier, Study, choice, loguniform

study = Study(
    name="photos",
    trial=ImageClassifier(data="folder:photos", weights="imagenet", validation=0.2),
    space={
        "model": choice(["resnet18", "mobilenet_v3_large", "efficientnet_b0"]),
        "finetune": choice(["head", "lp-ft"]),  # the last layer alone; or first that, then all layers
        "backbone_lr_scale": loguniform(0.01, 1).when(finetune="lp-ft"),
        "flip": 0.5,
        "lr": loguniform(1e-4, 1e-2),
        "batch_size": choice([16, 32]),
        "optimizer": "adamw",
        "weight_decay": loguniform(1e-5, 1e-1),
    },
    metric="val_accuracy",
    budget=Budget(total_epochs=120, max_epochs=10, hours=2.0),
    refit="train+validation",
)
