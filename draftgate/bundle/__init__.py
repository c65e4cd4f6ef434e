"""Engine and suite for a runner that reaches no package registry.

`pack` resolves an engine and draftgate for the runner's Python, leaves out what
the runner's image holds, and writes one archive in parts with a manifest;
`unpack`, a file of the standard library alone that travels with the parts,
checks and joins them. Starts no engine and knows no profile.
"""

from draftgate.bundle.pack import PackRequest, pack
from draftgate.bundle.recipe import Recipe, host_names, load_host, load_recipe, recipe_names
from draftgate.bundle.unpack import UnpackError, unpack

__all__ = [
    "PackRequest",
    "Recipe",
    "UnpackError",
    "host_names",
    "load_host",
    "load_recipe",
    "pack",
    "recipe_names",
    "unpack",
]
