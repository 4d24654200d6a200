"""Gangs of the older APIs: records, settings, statuses, views."""
