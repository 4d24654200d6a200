"""Records of the quota plane."""
