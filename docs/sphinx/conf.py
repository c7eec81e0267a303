"""Configure Sphinx for the pages that docs/build.py writes. The site loads nothing from other hosts."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import vitkit

project = "vitkit"
version = release = vitkit.__version__
html_title = f"vitkit {release}"
html_show_copyright = False

extensions = ["myst_parser", "mathml"]
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]  # code hosts render ```math as a formula too
myst_heading_anchors = 4  # anchors of headings, named as on a code host
html_math_renderer = "mathml"

html_theme = "furo"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "friendly", "github-dark"
