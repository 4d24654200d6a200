"""The search for the victims that cost least, and its bound (profile `best`)."""
