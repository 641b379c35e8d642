"""The control fold: every record that is no frame, through the core's own reducer, becomes tables, state and catalogue.

Pure: Arrow in, Arrow and bytes out. No Spark, no files, no clock, and no second definition of what a record means:
`mew.protocol.fold` defines that, and this package observes the resulting state. `folding.fold_control` builds the
tables of a batch, `moment.state_at` the welcome at any position.
"""
