"""Who displaced whom over time, and who is spared because of it: the same for every plane."""
