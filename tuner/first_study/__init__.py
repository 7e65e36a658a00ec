"""From a folder of images to a study file: it examines the data and the machine, and chooses settings that fit both."""
