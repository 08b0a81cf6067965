"""The words of the command line: what every command takes, says in its help, and completes in a shell.

Nothing here imports NumPy before it is needed: `--help` and a wrong option answer at once. `base` is what all
parsers share, `parsers` has one for each command of `python -m oracle`, `values` reads the values of options,
`examples` is what help shows; `check`, `replay` and `listing` are commands that live nowhere else.
"""
