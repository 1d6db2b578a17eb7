"""`spanlm serve [RUN …]`."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import secrets
import sys
import threading
import webbrowser
from pathlib import Path

from spanlm.cli.options import note_unfinished
from spanlm.cli.render import note, out
from spanlm.errors import InputError, installation, require

MOST_REQUESTS = 64
"""Requests running or waiting; further ones get status 429."""


def run(options: argparse.Namespace) -> None:
    if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn", "msgspec")):
        raise InputError(f"needs starlette, uvicorn and msgspec: {installation('serve')}")
    import torch

    from spanlm.serve import demo
    from spanlm.serve.app import make_app
    from spanlm.serve.guard import LOOPBACK
    from spanlm.serve.served import Runs
    from spanlm.serve.server import Server, listening
    from spanlm.serve.work import Work

    if options.host not in LOOPBACK and options.token is None:
        raise InputError(
            f"--host={options.host}: lets others on the network ask your models. Add --token to say that you want it: "
            "only who has the token can."
        )
    token = None if options.token is None else options.token or secrets.token_urlsafe(24)
    usable = token is None or re.fullmatch(r"[\w.~-]+", token, re.ASCII) is not None
    require(usable, "token", token, "letters, digits and . ~ _ - alone, which an address can hold")
    runs, address = Runs(), listening(options.host, options.port)
    with address:
        training = demo.Training(runs, options.device, lambda: note("the demo is trained, and served"), options.threads)
        for name in options.runs or [str(demo.DEMO)] * demo.is_there():
            runs.add(name, options.device)
            note_unfinished(Path(name))
        processors = os.cpu_count() or 1
        work = Work(max(2, processors // torch.get_num_threads()), MOST_REQUESTS)
        server = Server(make_app(runs, work, options.host, token), work)
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)
        name = f"[{host}]" if ":" in host else host
        url = f"http://{name}:{address.getsockname()[1]}/" + (f"?token={token}" if token else "")
        description = ", ".join(served.name for served in runs.all)
        if not description:
            training.begin()
            description = f"the demo, as soon as it is trained (about a minute, into {demo.DEMO})"
        out(f"{url}  serves {description}. Ctrl-C ends it.")
        if options.host not in LOOPBACK:
            note("for others this machine's name stands in that address; who has the token can ask, over plain HTTP")
        sys.stdout.flush()
        if options.open:
            threading.Timer(0.5, webbrowser.open, [url]).start()
        try:
            server.run([address])
        finally:
            training.end()
    note("spanlm: stopped")
    os._exit(128 + server.signal_number)  # do not wait for threads that are in the middle of a step
