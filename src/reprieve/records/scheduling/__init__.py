"""Records of the scheduling plane."""
