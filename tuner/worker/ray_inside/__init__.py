"""All of a worker that touches Ray's inside; its private names stand in tuner/driver/ray_inside/names.toml, too."""
