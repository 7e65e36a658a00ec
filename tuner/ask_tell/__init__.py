"""A search whose trials the user's own program runs: it asks for trials and reports their results. Needs no Ray."""

from tuner.ask_tell.search import Search
from tuner.ask_tell.trial import Answer, AskedTrial

__all__ = ["Answer", "AskedTrial", "Search"]
