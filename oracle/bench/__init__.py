"""How fast it is: kernels on the card beside their rivals, the host, `prepare`, and the verification itself.

`command` is the command line; `budget` guards the kernels' instruction counts where there is no card.
"""
