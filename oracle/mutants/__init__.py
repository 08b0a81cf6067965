"""How much the oracle notices: one semantic change at a time, to both backends and to the rules on arguments.

`sources` makes the mutants, by the rules of `expressions` and `statements` on the syntax tree of each file;
`worker` puts one to the judges of its kind (`device`, `hosts`, `compilers`) in an own process; `run` does
that for many at once; `command` prints what became of them.
"""
