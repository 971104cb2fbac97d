"""Parts of the benchmark `styles`."""
