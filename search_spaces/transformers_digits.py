"""Handwritten digits with a small vision transformer and Hugging Face's Trainer: `tuner.TransformersReport` reports.

Needs transformers and accelerate: pip install 'image-tuner[hf,train]'. The data comes with scikit-learn. What the
trainer writes into output_dir is only needed while the trial runs, hence the temporary working folder.
"""

import tuner
from tuner import ASHA, Budget, Study, choice, loguniform

MAX_EPOCHS = 9


def train(config):
    import torch
    from sklearn.datasets import load_digits
    from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))  # the same for every trial
    rows = [
        {"pixel_values": torch.tensor(images[row].reshape(1, 8, 8) / 16, dtype=torch.float), "labels": int(labels[row])}
        for row in order.tolist()
    ]
    size = ViTConfig(
        image_size=8,
        patch_size=2,
        num_channels=1,
        num_labels=10,
        hidden_size=config["width"],
        intermediate_size=2 * config["width"],
        num_hidden_layers=2,
        num_attention_heads=4,
    )
    report = tuner.TransformersReport()
    trainer = Trainer(
        ViTForImageClassification(size),
        TrainingArguments(
            output_dir="trainer",
            num_train_epochs=MAX_EPOCHS,
            learning_rate=config["lr"],
            per_device_train_batch_size=config["batch_size"],
            per_device_eval_batch_size=512,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            seed=torch.initial_seed() % 2**32,  # of the trial
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=rows[:1400],
        eval_dataset=rows[1400:],
        compute_metrics=lambda told: {"accuracy": float((told.predictions.argmax(1) == told.label_ids).mean())},
        callbacks=[report],
    )
    trainer.train(resume_from_checkpoint=report.resume_from)


study = Study(
    name="transformers-digits",
    trial=train,
    space={"lr": loguniform(1e-4, 1e-2), "width": choice([16, 32]), "batch_size": choice([32, 64])},
    metric="eval_accuracy",
    mode="max",
    scheduler=ASHA(grace_epochs=1, reduction_factor=3),
    budget=Budget(trials=6, max_epochs=MAX_EPOCHS),
    working_folder="temporary",
)
