"""The report of `check --html`: one page, complete in itself, without a script.

`coverage` counts while the run goes on, `heat` draws what it counted, `page` puts the page together.
"""
