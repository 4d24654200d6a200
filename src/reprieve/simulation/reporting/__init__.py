"""Reports of a study: tables, figures and pages."""
