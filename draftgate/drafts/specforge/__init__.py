"""The same head for the other training stack: what `specforge train` reads, from a recipe.

`targets` knows the sizes of targets, `run` turns a recipe into the two
configurations, `schema` checks the run against SpecForge's own rules, `yaml`
writes it, and `folder` puts all files in one place. Nothing here imports
SpecForge, which needs versions of its own.

Source:
    SpecForge 0.2.0, the wheel on PyPI (MIT). The JSON Schema beside this file is
    what its `specforge.config.Config` exports. Facts are taken over, no code.
"""
