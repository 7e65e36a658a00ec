"""A search as users of Ray Tune write it: HyperOpt, ASHA, a `DataLoader`; the baseline of `published.py`.

    python benchmarks/plain_search.py --data-dir DIR --storage DIR [--epochs 4 9] [--trials 10] [--held-out FILE]

ResNet18 on Fashion-MNIST, tuned over learning rate, batch size and number of epochs. It uses nothing of tuner. FILE
holds the numbers of the training images that are for validation, as a JSON list; without it a tenth is drawn. The last
line is one JSON object: config, test_accuracy.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import ray
import torch
import torchvision
from ray import tune
from ray._private import services
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.hyperopt import HyperOptSearch
from torch import nn
from torch.utils.data import DataLoader, Subset
from torchvision import transforms

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LOADER_WORKERS = 2 if DEVICE == "cuda" else 0  # on CPUs they only take time from the training


def fashion(data_dir: str, *, train: bool) -> Any:
    """Training or test images."""
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.286,), (0.353,))])
    return torchvision.datasets.FashionMNIST(data_dir, train=train, transform=transform)


def network(weights: str | None) -> nn.Module:
    """ResNet18 for grey images and ten classes."""
    model = torchvision.models.resnet18(weights=weights)
    model.conv1 = nn.Conv2d(1, 64, kernel_size=7, stride=2, padding=3, bias=False)
    model.fc = nn.Linear(model.fc.in_features, 10)
    return model


def train(config: dict[str, Any], data_dir: str, held_out: list[int], weights: str | None, seed: int) -> None:
    """One trial."""
    torch.manual_seed(seed)
    data = fashion(data_dir, train=True)
    kept = sorted(set(range(len(data))) - set(held_out))
    batches = DataLoader(Subset(data, kept), config["batch_size"], shuffle=True, num_workers=LOADER_WORKERS)
    validation = DataLoader(Subset(data, held_out), batch_size=256, num_workers=LOADER_WORKERS)
    model = network(weights).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    for _ in range(config["epochs"]):
        train_epoch(model, batches, optimizer)
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), Path(folder) / "model.pt")
            checkpoint = tune.Checkpoint.from_directory(folder)
            tune.report({"accuracy": accuracy(model, validation)}, checkpoint=checkpoint)


def train_epoch(model: nn.Module, batches: DataLoader[Any], optimizer: torch.optim.Optimizer) -> None:
    """Once through the training images."""
    model.train()
    for images, labels in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images.to(DEVICE)), labels.to(DEVICE))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, batches: DataLoader[Any]) -> float:
    """Share of correct answers."""
    model.eval()
    right = [(model(images.to(DEVICE)).argmax(1).cpu() == labels) for images, labels in batches]
    return float(torch.cat(right).double().mean())


def search(options: argparse.Namespace, held_out: list[int]) -> tune.Result:
    """The best trial."""
    fewest, most = options.epochs
    trial = tune.with_parameters(
        train, data_dir=str(options.data_dir), held_out=held_out, weights=options.weights, seed=options.seed
    )
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1, "gpu": 1 if DEVICE == "cuda" else 0}),
        param_space={
            "epochs": tune.randint(fewest, most + 1),
            "lr": tune.loguniform(1e-4, 1e-3),
            "batch_size": tune.choice([32, 64, 128]),
        },
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=options.trials,
            search_alg=HyperOptSearch(random_state_seed=options.seed),
            scheduler=ASHAScheduler(max_t=most, grace_period=1, reduction_factor=2),
        ),
        run_config=tune.RunConfig(
            name="plain",
            storage_path=str(options.storage),
            checkpoint_config=tune.CheckpointConfig(num_to_keep=1),
        ),
    )
    return tuner.fit().get_best_result()


def main() -> None:
    """Search, then score the best trial on the test images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--storage", type=Path, required=True)
    parser.add_argument("--epochs", type=int, nargs=2, default=(4, 9))
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", type=Path)
    parser.add_argument("--weights", help="DEFAULT for torchvision's of ImageNet; random ones without it")
    options = parser.parse_args()
    count = len(fashion(str(options.data_dir), train=True))
    drawn = torch.randperm(count, generator=torch.Generator().manual_seed(options.seed))[: count // 10].tolist()
    held_out = json.loads(options.held_out.read_text()) if options.held_out else drawn
    services.get_node_ip_address = lambda *_, **__: "127.0.0.1"  # Ray would listen on all interfaces
    ray.init(address="local")  # not one that somebody else runs here
    best = search(options, held_out)
    ray.shutdown()
    model = network(None).to(DEVICE)
    with best.checkpoint.as_directory() as folder:
        model.load_state_dict(torch.load(Path(folder) / "model.pt"))
    test = DataLoader(fashion(str(options.data_dir), train=False), batch_size=256, num_workers=LOADER_WORKERS)
    print(json.dumps({"config": best.config, "test_accuracy": accuracy(model, test)}))


if __name__ == "__main__":
    main()
