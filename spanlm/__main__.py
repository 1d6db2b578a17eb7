from spanlm.cli import stop_at_once

stop_at_once(loading=True)  # `main` does it, too, but its module loads first

from spanlm.cli.main import main  # noqa: E402

raise SystemExit(main())
