"""Looks for a problem that a backend gets wrong, and makes it small.

`strategies` draws whole problems by their structure with Hypothesis, many to a batch, since a launch of the
simulator costs about the same for one as for a hundred; `smaller` shrinks a failing one, again many
candidates at a time; `keep` writes it into the known cases; `run` does it all in worker processes.
"""
