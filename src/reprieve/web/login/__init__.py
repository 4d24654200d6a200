"""Who looks at the page in the cluster, and what they may see: asked of the API server."""
