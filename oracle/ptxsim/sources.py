"""Which line of Python an instruction comes from, where the text that ran does not say it."""

from oracle.ptxsim.errors import SimulationError
from oracle.ptxsim.program import Program


def find_source(error: SimulationError, ran: Program, traced: Program) -> str:
    """Return the source line of the instruction that an error names, or an empty string.

    Parameters
    ----------
    error
        What ``ran`` ended with.
    ran
        The program, from a text without ``.loc``.
    traced
        The same kernel from a text with it; where its instructions differ it tells nothing.
    """
    if [i.text for i in ran.code] != [i.text for i in traced.code]:
        return ""
    pairs = zip(ran.code, traced.code, strict=True)
    found = (also.source for one, also in pairs if (one.line, one.text) == (error.line, error.text))
    return next(found, "")
