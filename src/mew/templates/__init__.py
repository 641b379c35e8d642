"""What `mew init` makes spaces of: a folder for each template, with a `template.json` and a `space.yaml`.

Data. Files below `agents` are copied into spaces, where `mew agent start` runs them.
"""
