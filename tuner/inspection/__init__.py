"""Code that needs a model and a run: the winner's score, the folder `best/`, and loading the model from it."""

from tuner.inspection.best import LoadedModel, load_model, load_winner, write_best
from tuner.inspection.card import Inputs, ModelCard
from tuner.inspection.scoring import Mistake, Score, score
from tuner.inspection.tasks import Prediction

__all__ = [
    "Inputs",
    "LoadedModel",
    "Mistake",
    "ModelCard",
    "Prediction",
    "Score",
    "load_model",
    "load_winner",
    "score",
    "write_best",
]
