"""`python -m lunette` is the command line."""

from lunette.cli import main

if __name__ == "__main__":
    main()
