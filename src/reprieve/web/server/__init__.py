"""The page over HTTP: routes, streams, downloads, files, and what browsers are told to refuse."""
