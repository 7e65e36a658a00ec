"""The process and its machine: its hardware, helper processes, temporary files, what is installed."""
