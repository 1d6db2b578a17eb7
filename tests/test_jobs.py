"""Where commands run: refused engines, runs that others train, commands that end with their parent, and Ray."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from spanlm.errors import IN_USE, InputError
from spanlm.jobs import PASSED_OVER, Engine


def shell(*lines: str) -> list[str]:
    return [sys.executable, "-c", "import os, signal, sys, time\n" + "\n".join(lines)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"on": "ray:"}, "on=ray:: must be ray, or ray:ADDRESS"),
        ({"on": "ray", "gpus_per_run": -1.0}, "gpus_per_run=-1.0: must be 0 to 1, or a whole number"),
        ({"on": "ray", "gpus_per_run": 1.5}, "gpus_per_run=1.5: must be"),
    ],
)
def test_engines_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Engine(**fields)


def test_commands_run_so_many_at_a_time_and_say_how_they_ended(tmp_path: Path) -> None:
    heard: list[tuple[str, str]] = []
    commands = {
        "fine": shell("print('one\\ntwo')"),
        "bad": shell("sys.exit('spanlm: no room')"),
        "silent": shell("sys.exit(3)"),
    }
    log = tmp_path / "fine.log"
    ended = Engine(jobs=2).run(commands, 1, lambda name, line: heard.append((name, line)), logs={"fine": log})
    assert dict(ended) == {"fine": "", "bad": "no room", "silent": "its process ended with 3"}
    assert [line for name, line in heard if name == "fine"] == ["one", "two"]
    assert log.read_text() == "one\ntwo\n"


@pytest.mark.slow
def test_no_command_outlives_its_reader() -> None:
    waiting = shell("print(os.getpid(), flush=True); time.sleep(60)")
    pids: list[int] = []
    commands = {"a": shell("time.sleep(1)"), "b": waiting, "c": waiting}
    found = Engine(jobs=2).run(commands, 1, lambda _, pid: pids.append(int(pid)))
    next(found)
    found.close()
    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.slow
def test_a_run_that_another_process_trains_is_passed_over_and_looked_at_again(tmp_path: Path) -> None:
    mark, refusal = tmp_path / "mark", f"spanlm: x: {IN_USE}. Wait for it."
    busy = shell(f"mark = {str(mark)!r}", "if not os.path.exists(mark):", " open(mark, 'w')", f" sys.exit({refusal!r})")
    heard: list[tuple[str, str]] = []
    ended = Engine().run({"busy": busy, "free": shell("")}, 1, lambda name, line: heard.append((name, line)))
    assert list(ended) == [("free", ""), ("busy", "")] and heard == [("busy", PASSED_OVER)]


@pytest.mark.slow
def test_a_command_that_was_killed_is_started_again_while_others_run(tmp_path: Path) -> None:
    mark, again = str(tmp_path / "mark"), str(tmp_path / "again")
    once = f"if not os.path.exists({mark!r}): open({mark!r}, 'w'); os.kill(os.getpid(), signal.SIGKILL)"
    waiting = shell(
        *f"for _ in range(999):\n if os.path.exists({again!r}): sys.exit()\n time.sleep(0.1)".split("\n"), "sys.exit(3)"
    )
    ended = Engine(jobs=2).run({"killed": shell(once, f"open({again!r}, 'w')"), "waits": waiting}, 1)
    assert dict(ended) == {"killed": "", "waits": ""}
    always = shell("os.kill(os.getpid(), signal.SIGKILL)")
    assert list(Engine().run({"a": always}, 1)) == [("a", "its process was ended by SIGKILL (out of memory?)")]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no other system can")
def test_a_command_ends_with_the_process_that_started_it() -> None:
    child = "from spanlm.store.signals import follow_parent; follow_parent(); print(os.getpid(), flush=True); "
    code = f"""
import sys
from spanlm.jobs import Engine
child = [sys.executable, "-c", "import os, time; {child} time.sleep(600)"]
list(Engine().run({{"one": child}}, 1, lambda name, line: print(line, flush=True)))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    for _ in range(1200):
        try:
            os.kill(pid, 0)
            time.sleep(0.1)
        except ProcessLookupError:
            return
    pytest.fail("the child lives")


@pytest.fixture
def ray() -> Any:
    """Ray, which is an extra."""
    return pytest.importorskip("ray", reason="needs the extra ray")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the library's own
def test_commands_run_as_tasks_of_ray(ray: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    once = str(tmp_path / "once")
    kill = f"if not os.path.exists({str(mark)!r}): open({str(mark)!r}, 'w'); os.kill(os.getppid(), signal.SIGKILL)"
    commands = {
        "fine": shell("print('one')", "print(os.getcwd())"),
        "bad": shell("sys.exit('spanlm: no room')"),
        "its worker is killed once": shell(kill, "time.sleep(1)"),
        "killed once": shell(f"if not os.path.exists({once!r}): open({once!r}, 'w'); os.kill(os.getpid(), 9)"),
    }
    log = tmp_path / "fine.log"
    ended = Engine(jobs=2, on="ray").run(commands, 1, below=tmp_path, logs={"fine": log})
    assert dict(ended) == {"fine": "", "bad": "no room", "its worker is killed once": "", "killed once": ""}
    assert log.read_text() == f"one\n{os.getcwd()}\n" and mark.exists()
    assert not ray.is_initialized()
    with pytest.raises(InputError, match=r"gpus_per_run=1\.0: must be at most 0: a run needs 1 GPU"):
        list(Engine(on="ray", gpus_per_run=1.0).run(commands, 1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_task_of_ray_outlives_its_reader(ray: Any, tmp_path: Path) -> None:
    mark, number, saved = (tmp_path / name for name in ("mark", "number", "saved"))
    caught = f"signal.signal(signal.SIGTERM, lambda *_: (open({str(saved)!r}, 'w'), sys.exit(1)))"
    begun = f"open({str(number)!r}, 'w').write(str(os.getpid()))"
    waiting = shell(caught, begun, f"open({str(mark)!r}, 'w')", "time.sleep(60)")
    first = shell(f"while not os.path.exists({str(mark)!r}): time.sleep(0.1)")
    ended = Engine(jobs=2, on="ray").run({"a": first, "b": waiting}, 1)
    assert next(ended) == ("a", "")
    ended.close()
    assert saved.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)
