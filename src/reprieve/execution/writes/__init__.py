"""Writes to objects of others: each checked, each under the fence."""
