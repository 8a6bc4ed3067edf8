"""The distribution of a node's weights and outputs."""
