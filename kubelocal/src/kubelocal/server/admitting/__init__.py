"""Admission: what is refused or changed before an object is stored."""
