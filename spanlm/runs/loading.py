"""Load a run folder, an ARPA file, or a Hugging Face model as a `Model`."""

from __future__ import annotations

from pathlib import Path

import torch

from spanlm.config import RunConfig, check_config, config_digest
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import FEW, InputError, named, require_path
from spanlm.models.language_model import to_be_filled
from spanlm.runs.model import Model, TrainedModel
from spanlm.runs.ngram import is_ngram_run, load_arpa, load_ngram_run
from spanlm.store.files import HF, expanded, is_arpa, is_hf, is_kenlm
from spanlm.store.machine import pick_device
from spanlm.store.run_folder import CONFIG, MODEL, copy_weights, read_weights, vocabulary_file
from spanlm.training.setup import refuse_too_large


def load(run: str | Path, device: str = "auto") -> Model:
    """Load the best model of a run folder, or an ARPA file; device: auto (a GPU if there is one), cpu, cuda.

    A training run becomes a `TrainedModel`. An n-gram model has no attention and no dynamic evaluation, and computes on
    the processor, whatever the device. `hf:FOLDER`, a causal model of Hugging Face, becomes a `Yardstick`.

    Raises:
        InputError: the path is not a run, its files do not belong together, or its weights are not finite.

    Example:
        >>> model = spanlm.load("runs/demo", device="cpu")
        >>> [word.word for word in model.score("the name is bound .")]
        ['the', 'name', 'is', 'bound', '.']
    """
    require_path("run", run)
    if is_hf(run):
        from spanlm.interop.yardstick import Yardstick

        return Yardstick(str(run).removeprefix(HF), device)
    folder = expanded(run)
    if is_arpa(folder) and not folder.is_dir():
        return load_arpa(folder)
    if is_kenlm(folder) and folder.is_file():
        raise InputError(f"{folder}: KenLM's binary format is for pairs and rescore; name its ARPA file")
    if folder.is_file():
        raise InputError(
            f"{folder}: is a file; name the folder of a run, or an ARPA file, NAME.arpa or NAME.lm[.gz]. "
            f"A text to evaluate is named by {named('corpus=…')}"
        )
    if not (folder / CONFIG).is_file():
        if members := sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}")):
            raise InputError(
                f"{folder}: holds {', '.join(members[:3])}{', …' * (len(members) > 3)}, and is no run itself. Name one "
                f"of them, {folder / members[0]}, or several."
            )
        why = f"it has no {CONFIG}" if folder.exists() else "there is no such folder. Check the path"
        beside = sorted(str(path.parent) for path in folder.parent.glob(f"*/{CONFIG}"))
        runs = f" Runs in {folder.parent}: {', '.join(beside[:FEW])}{', …' * (len(beside) > FEW)}." if beside else ""
        raise InputError(f"{folder}: is not the folder of a run: {why}.{runs}")
    if is_ngram_run(folder):
        return load_ngram_run(folder)
    config = RunConfig.load(folder / CONFIG, whole=True)
    vocabulary = Vocabulary.load(vocabulary_file(folder, config.data.of_pieces))
    # check that the files match before a model of a wrong size is built
    weights = read_weights(folder, vocabulary.hash)
    check_config(weights.config, config_digest(config.to_tree()), folder / MODEL)
    refuse_too_large(config, len(vocabulary))
    # torch's default type, which a notebook may change, is not the file's
    double = any(tensor.dtype == torch.float64 for tensor in weights.tensors.values())
    model = to_be_filled(config.model, len(vocabulary)).to(torch.float64 if double else torch.float32)
    copy_weights(weights.tensors, model, str(folder / MODEL))
    return TrainedModel(model.to(pick_device(device, "device")).eval(), vocabulary, config, folder)
