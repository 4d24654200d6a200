"""What the operator runs: a folder for each plane, and what all of them stand on."""
