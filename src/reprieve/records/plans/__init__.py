"""The record of a plan: its name, its content, and its parts where it is large. Pure."""
