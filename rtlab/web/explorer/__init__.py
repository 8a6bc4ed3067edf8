"""The Explorer and the linked graphs: commands of the page in, documents out."""
