"""What users configure: flags, variables, files and defaults -> engine policies."""
