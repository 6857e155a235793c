"""`python -m floodmark` is `floodmark`."""

from floodmark.cli import main

if __name__ == "__main__":
    main()
