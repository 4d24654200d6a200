"""Notifies users of displaced work by a webhook that their namespace names."""
