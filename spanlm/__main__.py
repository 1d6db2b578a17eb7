from spanlm.cli.main import main

if __name__ == "__main__":  # processes of `spanlm reproduce --jobs` read this file, too
    raise SystemExit(main())
