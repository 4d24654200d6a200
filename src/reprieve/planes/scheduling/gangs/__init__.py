"""Gangs of the older front doors: records, settings, statuses, views."""
