"""What people type: one module per command, imported when the command is used."""
