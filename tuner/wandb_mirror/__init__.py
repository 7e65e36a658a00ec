"""A run shown in Weights & Biases: `mirror` is the process that does it, `process` starts and ends it."""
