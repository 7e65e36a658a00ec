"""CIFAR-10 with a small network of your own: a trial is a plain function that calls `tuner.report` once an epoch.

The search of PyTorch's hyperparameter tutorial: widths of two dense layers, learning rate, batch size; ASHA from the
first epoch on. The images are under $TUNER_DATA (default: data), in torchvision's files or as
cifar10/train/<class>/*.jpg. torchvision downloads them if there is internet.
"""

import os
import tempfile
from pathlib import Path

import tuner
from tuner import ASHA, Budget, Random, Resources, Study, choice, loguniform

MAX_EPOCHS = 10
DATA = Path(os.environ.get("TUNER_DATA", "data")).absolute()


def train(config):
    import torch
    from torch import nn

    from tuner.train import load_splits
    from tuner.trial import ImageClassifier

    splits = load_splits(ImageClassifier(data="cifar10", weights=None, data_dir=str(DATA)), seed=0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = small_network(config["l1"], config["l2"]).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=config["lr"], momentum=0.9)
    first = 0
    if (folder := tuner.checkpoint()) is not None:
        state = torch.load(folder / "state.pt", weights_only=True)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"]
    for epoch in range(first, MAX_EPOCHS):
        network.train()
        order = torch.randperm(len(splits.train.labels), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(config["batch_size"]):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(
                network(scaled(splits.train.images[batch]).to(device)), splits.train.labels[batch].to(device)
            )
            loss.backward()
            optimizer.step()
        network.eval()
        with torch.inference_mode():
            outputs = torch.cat(
                [network(scaled(images).to(device)).cpu() for images in splits.validation.images.split(512)]
            )
        labels = splits.validation.labels
        with tempfile.TemporaryDirectory() as folder:
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
            torch.save(state, Path(folder) / "state.pt")
            tuner.report(
                val_loss=nn.functional.cross_entropy(outputs, labels).item(),
                val_accuracy=(outputs.argmax(1) == labels).float().mean().item(),
                checkpoint=folder,
            )


def scaled(images):
    """uint8 [N, 3, 32, 32] as float in [-1, 1]."""
    return images.float() / 127.5 - 1


def small_network(l1, l2):
    """Two convolutions, two dense layers of l1 and l2 units."""
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Flatten(),
        *(nn.Linear(16 * 5 * 5, l1), nn.ReLU()),
        *(nn.Linear(l1, l2), nn.ReLU()),
        nn.Linear(l2, 10),
    )


study = Study(
    name="cifar-net",
    trial=train,
    space={
        "l1": choice([2**power for power in range(2, 9)]),
        "l2": choice([2**power for power in range(2, 9)]),
        "lr": loguniform(1e-4, 1e-1),
        "batch_size": choice([2, 4, 8, 16]),
    },
    metric="val_loss",
    mode="min",
    search=Random(),
    scheduler=ASHA(grace_epochs=1, reduction_factor=2),
    budget=Budget(trials=10, max_epochs=MAX_EPOCHS),
    resources=Resources(cpus=1),
    seed=0,
)
