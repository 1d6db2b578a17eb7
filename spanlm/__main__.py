from spanlm.cli.main import main

raise SystemExit(main())
