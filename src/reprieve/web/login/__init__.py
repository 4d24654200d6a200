"""Who looks at the page in the cluster, and what they may see: queried of the API server."""
