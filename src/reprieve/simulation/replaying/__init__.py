"""Replays jobs under one policy on a virtual clock."""
