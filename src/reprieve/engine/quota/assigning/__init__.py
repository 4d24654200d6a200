"""Assigns flavors to pod sets, and places where topology asks for them."""
