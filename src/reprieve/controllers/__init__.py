"""What runs in the operator: the process, its state and one module for each plane."""
