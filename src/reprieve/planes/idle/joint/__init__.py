"""What the idle plane and the other planes of its process query each other."""
