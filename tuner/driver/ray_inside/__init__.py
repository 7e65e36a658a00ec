"""All of the driver that touches Ray's inside: each private name that it uses stands in `names`, and nowhere else."""
