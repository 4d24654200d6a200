"""Budgets of harm: how much displacement a tenant suffers or causes within a window."""
