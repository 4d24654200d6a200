"""What the idle plane and the other planes of its process ask each other."""
