"""The documentation as a site. In the repository's root: ``sphinx-build -W -c docs . build/site``."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import pages  # noqa: E402 - found by the line above

import rtlab  # noqa: E402 - the same

project = "rtlab"
version = release = rtlab.__version__
html_title = f"rtlab {release}"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Pages lie where GitHub shows them, and their links lead to files there.
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/**",
    "notebooks/*.ipynb",
    "sample_models/**.md",
    "tests/golden/*.md",
    "tests/plant/*.md",
    "tests/wild/TABLE.md",
]
exclude_patterns = [".*", "**/.*", "**/node_modules", "build", "dist", "rtlab", "rtlab-notebooks", "widgets"]

nb_execution_mode = "off"  # no kernel: what a notebook shows are reports, which pages.py writes
myst_heading_anchors = 4
myst_enable_extensions = ["deflist"]

autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
    # What a class has of its own kind is described there.
    "inherited-members": "Mapping, Enum, Exception, tuple, object",
}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
napoleon_numpy_docstring = False

smartquotes = False  # what stands in quotes is typed

html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style, pygments_dark_style = "default", "monokai"


def setup(app):
    """What is written while the site is built."""
    app.connect("builder-inited", pages.write_reports)
    app.connect("source-read", pages.complete)
    app.connect("autodoc-process-signature", pages.close_defaults)
    app.connect("build-finished", pages.write_entrance)
