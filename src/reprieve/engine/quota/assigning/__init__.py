"""Assigns flavors to pod sets, and places where topology requests them."""
