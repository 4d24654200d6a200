"""What the cluster was like: samples of who held and who waited, kept for a week."""
