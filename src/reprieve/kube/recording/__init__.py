"""Records Events, and bounds how many writes of little weight are sent."""
