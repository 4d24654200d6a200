"""The records of plans: written first, in parts where they are large, and kept in a book."""
