"""`python -m oracle`."""

import sys

if __name__ == "__main__":
    try:
        from oracle.cli import main
    except KeyboardInterrupt:
        sys.exit(130)  # before `main` can catch it
    sys.exit(main())
