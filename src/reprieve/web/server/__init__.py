"""The page over HTTP: routes, streams, downloads, files, and headers that restrict browsers."""
