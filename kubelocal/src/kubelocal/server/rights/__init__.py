"""Users and their rights."""
