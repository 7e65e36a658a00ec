"""One trial on several devices: the processes that train it together, and what each of them takes on."""
