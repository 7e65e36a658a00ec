"""A search whose trials the user's own program runs: it asks for them and tells what became of them. Needs no Ray."""

from tuner.ask_tell.search import Search
from tuner.ask_tell.trial import Answer, AskedTrial

__all__ = ["Answer", "AskedTrial", "Search"]
