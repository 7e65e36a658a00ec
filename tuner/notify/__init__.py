"""Messages about a search to people who don't watch it: a web address gets JSON, or a command is run."""

from tuner.notify.notifier import Notifier
from tuner.notify.targets import Target, given_targets, listed, redacted

__all__ = ["Notifier", "Target", "given_targets", "listed", "redacted"]
