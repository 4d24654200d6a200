"""The pages: each a pure function from the mirror, a viewer and parameters to what is shown."""
