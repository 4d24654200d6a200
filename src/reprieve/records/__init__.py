"""Records of preemptions: what each holds, its story, and its decision made again."""
