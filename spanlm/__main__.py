"""`spanlm` and `python -m spanlm`."""

from spanlm.cli import loading


def main() -> int:
    """Run the command line; return the exit status."""
    with loading():
        from spanlm.cli.main import main
    return main()


if __name__ == "__main__":
    raise SystemExit(main())
