"""What is called from Python: searches, and runs with their tables, plots and orders."""
