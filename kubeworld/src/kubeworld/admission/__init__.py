"""What an API server refuses, fills in and counts before it stores an object."""
