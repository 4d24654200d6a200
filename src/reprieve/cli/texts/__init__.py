"""Answers of commands as text."""
