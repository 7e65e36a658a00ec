"""Handwritten digits with a LightningModule: `tuner.LightningReport` reports each epoch and saves it.

Needs Lightning: pip install 'image-tuner[lightning,train]'. The data comes with scikit-learn.
"""

import tuner
from tuner import ASHA, Budget, Study, choice, loguniform

MAX_EPOCHS = 9


def train(config):
    import torch
    from lightning.pytorch import LightningModule, Trainer, seed_everything
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset, random_split

    class Digits(LightningModule):
        def __init__(self):
            super().__init__()
            width = config["width"]
            self.network = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

        def training_step(self, batch):
            images, labels = batch
            return nn.functional.cross_entropy(self.network(images), labels)

        def validation_step(self, batch):
            images, labels = batch
            logits = self.network(images)
            self.log("val_loss", nn.functional.cross_entropy(logits, labels))
            self.log("val_accuracy", (logits.argmax(1) == labels).float().mean())

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=config["lr"])

    images, labels = map(torch.tensor, load_digits(return_X_y=True))
    split = torch.Generator().manual_seed(0)  # the same images for every trial
    training, validation = random_split(TensorDataset(images.float() / 16, labels), [0.8, 0.2], split)
    seed_everything(torch.initial_seed() % 2**32, verbose=False)  # of the trial

    report = tuner.LightningReport()
    trainer = Trainer(
        max_epochs=MAX_EPOCHS, callbacks=[report], logger=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(
        Digits(),
        DataLoader(training, batch_size=config["batch_size"], shuffle=True),
        DataLoader(validation, batch_size=512),
        ckpt_path=report.resume_from,
    )


study = Study(
    name="lightning-digits",
    trial=train,
    space={"lr": loguniform(1e-4, 1e-1), "width": choice([16, 32, 64]), "batch_size": choice([16, 64])},
    metric="val_accuracy",
    mode="max",
    scheduler=ASHA(grace_epochs=1, reduction_factor=3),
    budget=Budget(trials=12, max_epochs=MAX_EPOCHS),
)
