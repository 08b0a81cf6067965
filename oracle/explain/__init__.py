"""One call of `route` for a person: the picks with all their numbers, and the metadata as a picture.

`scene` says what there is to show, `terminal` and `svg` show it, `command` is `python -m oracle explain`.
"""
