"""Records of the idle plane."""
