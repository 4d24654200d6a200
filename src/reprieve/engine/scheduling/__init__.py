"""Which waiting pods and pod groups are placed, and who is preempted for them."""
