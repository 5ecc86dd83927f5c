"""`python -m rolloutgym.cli` is `rolloutgym`."""

from rolloutgym.cli import main

if __name__ == "__main__":
    main()
