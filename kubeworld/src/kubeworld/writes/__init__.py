"""What an API server makes of a write: the object as it is to be stored, or a refusal."""
