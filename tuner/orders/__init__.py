"""Users' orders to a running search, as files in the run's inbox; only the driver reads and answers them."""
