"""Ctrl-C and SIGTERM: saved, said how to go on, and gone on with to the same bits."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from spanlm.cli.main import main
from spanlm.cli.training_report import TrainingReport
from spanlm.config import RunConfig
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import Interrupted
from spanlm.models.encoders import LSTMConfig
from spanlm.scoring.tally import Tally
from spanlm.store.checkpoints import load_last_checkpoint
from spanlm.store.signals import stop_request
from spanlm.training.progress import EpochEvent
from spanlm.training.run import train
from tests.cases import rest_slow
from tests.training.processes import Processes
from tests.training.small import (
    RUNS,
    STAGES,
    STEPS,
    Heard,
    differing,
    goes_on_exactly,
    make_config,
    make_corpus,
    outcome,
    rows,
    undisturbed,
    with_model,
    with_training,
)

OPTIONS = (
    *("--model.embedding_size", "5", "--model.encoder.hidden_size", "6", "--training.batching.batch_size", "3"),
    *("--training.batching.length", "6", "--training.epochs", "12", "--training.patience", "null"),
    *("--training.device", "cpu", "--training.log_every", "1", "--training.checkpoint_every", "1000"),
)

PLAIN = next(iter(RUNS))


def until(condition: object, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_command_line_is_ended_and_the_run_goes_on_exactly(
    processes: Processes, text_folder: Path, room: Path, number: signal.Signals
) -> None:
    begin = ["train", "demo", "--corpus", str(text_folder), *OPTIONS, "--training.checkpoint_every", "5", "--out"]
    said, folder = room / "said", room / "run"
    pid = processes.start("command", said, arguments=[*begin, str(folder)])
    until(lambda: (folder / "metrics.jsonl").exists() and (folder / "metrics.jsonl").read_bytes().count(b"\n") > 30)
    os.kill(pid, number)
    status, again = processes.wait(pid), ["train", "--out", str(folder), "--resume", "auto"]
    if number == signal.SIGKILL:
        assert status == -number
    else:
        last = said.read_text().splitlines()[-1]
        assert status == 128 + number and last.startswith("spanlm: stopped by SIGTERM after step")
        assert last.endswith(f"spanlm {' '.join(again)}")
    assert processes.run("command", arguments=[*again, "--no-tour"]) == 0  # the folder knows its configuration
    assert processes.run("command", arguments=[*begin, str(room / "whole")]) == 0
    assert not differing(outcome(folder), outcome(room / "whole"))


def stopped_at(config: RunConfig, folder: Path, step: int, number: signal.Signals = signal.SIGTERM) -> None:
    with pytest.raises(Interrupted, match=rf"after step {step}; everything is saved") as stopped:
        train(config, make_corpus(), folder, Heard(step, lambda: signal.raise_signal(number)))
    assert stopped.value.exit_status == 128 + number
    checkpoint, _ = load_last_checkpoint(folder / "checkpoints")
    assert checkpoint is not None and checkpoint.position["step"] == step


@pytest.mark.parametrize(
    ("name", "step"),
    rest_slow(
        [
            (PLAIN, 7),
            (STAGES, STEPS + 1),
            *((PLAIN, n) for n in (1, 20, 21)),
            *((STAGES, n) for n in (STEPS, 2 * STEPS, 2 * STEPS + 1)),
        ],
        always=2,
    ),
)
def test_interrupted_at_any_step(room: Path, name: str, step: int) -> None:
    """Step 7 is that of a checkpoint, and the last of an epoch is 20 or 21; of stages the first average, the last step
    before a stage, the first of it, with no checkpoint but the signal's."""
    config = RUNS[name]() if name == PLAIN else with_training(RUNS[name](), checkpoint_every=1000)
    stopped_at(config, room, step, signal.SIGINT if step % 2 else signal.SIGTERM)
    goes_on_exactly(config, room)


def test_interrupted_when_the_last_epoch_is_written(room: Path) -> None:
    """The run is over, and the caller, which may have others, hears of it."""

    class AtTheEnd(Heard):
        def epoch(self, event: EpochEvent) -> None:
            if event.position.epoch == 2:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted, match="everything is saved"):
        train(make_config(), make_corpus(), room, AtTheEnd())
    assert not differing(outcome(room), undisturbed(make_config()))


@pytest.mark.slow
def test_interrupted_while_the_lstm_runs_as_a_loop(room: Path) -> None:
    """As large layers do in bfloat16; its state is not the kernel's in type."""
    config = make_config(kind="streams", shuffle=False, precision="bf16", epochs=1)
    config = with_model(config, encoder=LSTMConfig(hidden_size=600))
    stopped_at(config, room, 11)
    goes_on_exactly(config, room)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_interrupted_on_a_gpu(room: Path) -> None:
    """Masks are drawn there, and there the state lies. Other masks would be far off; bits are the CPU's promise."""
    config, corpus = make_config(device="cuda", layers=2), make_corpus()
    train(config, corpus, room / "whole")
    stopped_at(config, room / "run", 11)
    train(config, corpus, room / "run", resume=True)
    (found, _), (expected, _) = (load_last_checkpoint(room / name / "checkpoints") for name in ("run", "whole"))
    assert found is not None and expected is not None
    assert found.position["step"] == expected.position["step"] > 30
    torch.testing.assert_close(found.weights, expected.weights, rtol=0, atol=0.01)


@pytest.mark.parametrize(
    ("name", "call", "epochs"),
    rest_slow([(PLAIN, 3, 0), (STAGES, 12, 1), (STAGES, 21, 2)]),
    ids=["weights", "averages", "stage"],
)
def test_interrupted_while_validating(
    room: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: int, epochs: int
) -> None:
    """The checkpoint has the weights that training goes on from, also where averages are what is validated."""
    config = RUNS[name]()
    plus, calls = Tally.plus, []

    def interrupted(self: Tally, scored: object, vocabulary: Vocabulary, column: str) -> Tally:
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGINT)
        return plus(self, scored, vocabulary, column)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Tally, "plus", interrupted)
        train(config, make_corpus(), room)
    assert len(calls) == call  # it did not wait for the end of the validation
    assert [row["event"] for row in rows(room)].count("valid") == epochs
    goes_on_exactly(config, room)


def test_the_command_line_ends_at_the_second_ctrl_c(
    text_folder: Path, room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def twice(self: object, event: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TrainingReport, "step", twice)
    assert main(["train", "demo", "--corpus", str(text_folder), *OPTIONS, "--out", str(room / "run")]) == 130
    assert capsys.readouterr().err == "spanlm: stopped\n"


def test_handlers_are_put_back_and_another_thread_leaves_them_alone(room: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    train(make_config(epochs=1), make_corpus(), room / "main")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    ended = []

    def run() -> None:
        with stop_request() as request:
            ended.append(request.signal_number)
        ended.append(train(make_config(epochs=1), make_corpus(), room / "thread").epoch)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert ended == [None, 1]
