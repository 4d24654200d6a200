"""Controllers and the rules of an API server as functions over JSON objects."""

__version__ = "1.0.0rc1"
