"""What would happen if: the planes, run in this process on a copy of what a cluster holds."""
