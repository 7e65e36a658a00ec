"""What a study declares, as Python, as a file and as JSON; nothing here runs anything but the study file."""
