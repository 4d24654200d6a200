"""The webhooks of the quota plane: their server, certificates, and what is judged."""
