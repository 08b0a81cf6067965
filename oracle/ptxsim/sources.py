"""Which line of Python an instruction comes from, where the text that ran does not say it."""

from oracle.ptxsim.errors import SimulationError
from oracle.ptxsim.program import Program


def add_sources(error: SimulationError, ran: Program, traced: Program) -> None:
    """Give an error the source lines of the instructions that it names.

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
        return
    pairs = zip(ran.code, traced.code, strict=True)
    sources = {(one.line, one.text): also.source for one, also in pairs}
    error.source = sources[error.line, error.text]
    if error.other:
        error.other.source = sources[error.other.line, error.other.text]
