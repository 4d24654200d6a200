"""The kinds that are served: their fields, defaults, versions, schemas and definitions."""
