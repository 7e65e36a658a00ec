"""One trial on several devices: the processes that train it together, and the work of each."""
