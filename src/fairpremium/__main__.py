"""``python -m fairpremium``: the command line."""

from fairpremium.cli import main

if __name__ == "__main__":
    main()
