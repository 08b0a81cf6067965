"""Every supported version of both compilers, each in an environment of its own: the same bits from all.

`cells` says which versions, `environment` makes a place for one, `inside` runs there, `run` runs them all,
and `table` shows what came out; ``python -m oracle.matrix`` is the command.
"""
