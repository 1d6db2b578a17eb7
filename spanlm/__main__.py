from spanlm.store.process import stop_at_once

stop_at_once(loading=True)

from spanlm.cli.main import main  # noqa: E402 -- Ctrl-C is one line from here on

raise SystemExit(main())
