"""Report: a study as one HTML file, as Markdown or as JSON."""
