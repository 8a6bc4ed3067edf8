"""The tactics of a build, and other forms of the layers that were timed here."""
