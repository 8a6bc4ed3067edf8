"""What is shown of a study: the Explorer, its page, the report."""
