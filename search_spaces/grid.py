"""A full grid over learning rate and batch size on digits: every point is trained to its end."""

from tuner import Budget, Grid, ImageClassifier, NoEarlyStopping, Resources, Study, grid_search

study = Study(
    name="digits-grid",
    trial=ImageClassifier(data="digits", model="resnet18", weights=None),
    space={
        "lr": grid_search([3e-4, 1e-3, 3e-3]),
        "batch_size": grid_search([32, 64, 128]),
        "image_size": 16,
    },
    metric="val_accuracy",
    mode="max",
    search=Grid(),
    scheduler=NoEarlyStopping(),
    budget=Budget(trials=None, max_epochs=3),
    resources=Resources(cpus=1),
    seed=0,
)
