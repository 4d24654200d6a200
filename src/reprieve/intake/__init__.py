"""API objects and exposition text -> engine rows; pure, one function per kind."""
