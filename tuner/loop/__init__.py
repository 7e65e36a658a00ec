"""The search itself: what runs next, limits, which checkpoints stay, learning from earlier runs. No Ray, no torch."""
