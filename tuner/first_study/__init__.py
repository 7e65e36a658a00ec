"""From a folder of images to a study file: a look at the data, a look at the machine, and what follows from both."""
