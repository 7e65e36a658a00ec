"""A machine that checks itself: each check in its own process, one line for each, with what to do about it."""
