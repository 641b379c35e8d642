"""The templates of `mew init`: a folder for each, with a `template.json` and a `space.yaml`.

Files below `agents` are copied into spaces, where `mew agent start` runs them.
"""
