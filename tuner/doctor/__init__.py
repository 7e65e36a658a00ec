"""A machine that checks itself: each check in a process of its own, one line for each, with what to do about it."""
