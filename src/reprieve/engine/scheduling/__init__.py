"""Which waiting pods and pod groups are placed, and who makes way for them."""
