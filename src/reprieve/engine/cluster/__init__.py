"""The cluster as the engine sees it: rows, columns, snapshots."""
