"""The search itself: what next, limits, which checkpoints stay, what earlier runs teach. Neither Ray nor torch."""
