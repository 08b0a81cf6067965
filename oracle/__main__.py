"""`python -m oracle`."""

import sys

if __name__ == "__main__":
    try:
        from oracle.cli import main
    except KeyboardInterrupt:
        # Before `main` can catch it: the imports take most of a second.
        sys.exit(130)
    sys.exit(main())
