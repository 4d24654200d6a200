"""Answers to people's questions: what became of their work, why, and what they can do."""
