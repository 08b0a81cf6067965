"""Who disagrees with whom: both kernels, and others, against the specification, bit for bit.

`oracle.cases` makes problems, `oracle.backends` answer them, `oracle.compare` judges the answers and
`oracle.check` runs it all; `python -m oracle` is the command.
"""
