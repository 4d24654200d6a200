"""Pages that keep themselves up to date: what changed is sent, never the whole page again."""
