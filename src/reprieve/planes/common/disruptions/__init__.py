"""What all planes share of displacements: the governor, loops, and harm budgets."""
