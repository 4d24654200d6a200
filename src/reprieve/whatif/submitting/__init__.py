"""What is submitted: read, named, and admitted as an API server would."""
