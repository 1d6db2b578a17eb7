"""The records: files of JSON lines, a line a run, that `read` gives back whole and `write` packs.

A line names its `table` and, in it, its `row`. What all lines of a table share stands in one line without a row. Of a
configuration a line has the preset's name and `differs`, the fields with another value than the preset's, and a digest
of the whole; of numbers it has sums and counts, from which means and perplexities follow; and what all starts of a run
share is `made`, once.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, cast

from spanlm.config import RunConfig, config_digest, flat, nested
from spanlm.papers.certainty import NONE
from spanlm.papers.registry import PRESETS, find_preset

HERE = Path(__file__).parent
Record = dict[str, Any]
Rows = list[list[str]]  # the first is the header
PARTS = "valid", "test"
NULL = "salton2017", "without_cache", "without_neighbours", "without_dynamic", "parts"
"""What an evaluation has or has not."""


def read(name: str) -> dict[str, list[Record]]:
    """Return the records of NAME.jsonl, by table, in the order of the lines."""
    return {table: [whole(line) for line in lines] for table, lines in _lines(name).items()}


def records(name: str, table: str) -> list[Record]:
    """Return those of one table."""
    return [whole(line) for line in _lines(name)[table]]


def rounded(value: object, digits: int = 1, factor: int = 1) -> str:
    """Round what a record has; a dash where it has nothing, and words as they are."""
    if isinstance(value, str):
        return value
    shown = "" if value is None else f"{float(str(value)) * factor:,.{digits}f}"
    return shown.replace("-", "−") or NONE


def write(name: str, new: Iterable[Record]) -> None:
    """Put records into NAME.jsonl, each in the place of that of its table, row and seed, or at the table's end."""
    tables = {table: {_key(line): line for line in lines} for table, lines in _lines(name).items()}
    for line in map(packed, new):
        tables.setdefault(line["table"], {})[_key(line)] = line
    text = [line for table, lines in tables.items() for line in _of_table(table, list(lines.values()))]
    content = "".join(f"{json.dumps(line, ensure_ascii=False, separators=(',', ':'))}\n" for line in text)
    (HERE / f"{name}.jsonl").write_text(content, encoding="utf-8")
    _lines.cache_clear()


@cache
def _lines(name: str) -> dict[str, list[Record]]:
    """Return the lines of a file, still packed, with what their table shares."""
    path, shared, tables = HERE / f"{name}.jsonl", dict[str, Record](), dict[str, list[Record]]()
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines() if path.exists() else ()):
        if "row" in line:
            tables.setdefault(line["table"], []).append(_merged(shared.get(line["table"], {}), line))
        else:
            shared[line["table"]] = line
    return tables


def _key(line: Record) -> tuple[Any, ...]:
    return line["row"], line.get("seed"), *(member["seed"] for member in line.get("members", ()))


def _of_table(table: str, lines: list[Record]) -> list[Record]:
    """Return what most lines have as a line of its own, then each without that."""
    if len(lines) == 1:
        return [_ordered(lines[0])]
    shared = _shared([{name: x for name, x in line.items() if name not in ("row", "seed")} for line in lines])
    rest = [{"table": table, **_without(line, shared)} for line in lines]
    return [_ordered(line) for line in (shared, *rest)]


def _ordered(line: Record) -> Record:
    """Return a line with what names it first: so one run more changes no other line."""
    first = ("table", "row", "seed", "scale", "preset", "differs")
    return {name: line[name] for name in first if name in line} | cast(Record, _sorted(line))


def _sorted(value: Any) -> Any:
    if isinstance(value, list):
        return [_sorted(x) for x in value]
    return {name: _sorted(value[name]) for name in sorted(value)} if isinstance(value, dict) else value


def _shared(lines: Sequence[Record]) -> Record:
    """Return the fields that most have, with the value that most have; groups of fields likewise."""
    shared = Record()
    for name in dict.fromkeys(chain.from_iterable(lines)):
        values = [line[name] for line in lines if name in line]
        value = Counter(json.dumps(x, sort_keys=True) for x in values).most_common(1)[0]
        if 2 * len(values) <= len(lines):
            continue
        if all(isinstance(x, dict) for x in values):
            if inner := _shared(values):
                shared[name] = inner
        elif 2 * value[1] > len(lines):
            shared[name] = json.loads(value[0])
    return shared


LACKS = "lacks"
"""Names what most lines of a table have, and this one has not."""


def _without(line: Record, shared: Record) -> Record:
    """Leave out what is shared; `_merged` undoes it."""
    rest = Record()
    for name, value in line.items():
        if _both(value, shared.get(name)):
            inner = _without(value, shared[name])
            rest |= {name: inner} if inner else {}
        elif name not in shared or value != shared[name]:
            rest[name] = value
    lacks = sorted(name for name in shared if name not in line)
    return rest | ({LACKS: lacks} if lacks else {})


def _merged(shared: Record, line: Record) -> Record:
    """Return a line with what it shares."""
    lacks = line.get(LACKS, ())
    whole_line = {name: x for name, x in shared.items() if name not in lacks}
    for name, value in line.items():
        whole_line[name] = _merged(shared[name], value) if _both(value, shared.get(name)) else value
    whole_line.pop(LACKS, None)
    return whole_line


def _both(one: object, other: object) -> bool:
    return isinstance(one, dict) and isinstance(other, dict)


# --- one line ---


def packed(record: Record) -> Record:
    """Return a line without what follows from the rest of it; `whole` gives that back."""
    starts = record.get("starts")
    starts = starts if isinstance(starts, list) and all(isinstance(start, dict) for start in starts) else []
    apart = {"config"} & record.keys() if record.get("preset") in PRESETS else set[str]()
    apart |= {"starts"} if starts else set()
    line: Record = _pruned({name: x for name, x in record.items() if name not in apart})
    for part in PARTS:
        where = {"corpus": record.get("corpus"), "split": part}
        if isinstance(evaluation := line.get(part), dict) and evaluation.items() >= where.items():
            line[part] = {name: x for name, x in evaluation.items() if name not in where}
    if "config" in apart:
        line |= _configured(record["preset"], record["config"])
    if starts:
        line["made"] = _shared(starts)
        rest = [_without(start, line["made"]) for start in starts]
        line |= {"starts": rest} if len(rest) > 1 else {}
    return line


def whole(line: Record) -> Record:
    """Return the record of a line, as `spanlm reproduce` keeps it."""
    made, apart = line.get("made"), {"made", "starts", "digest"} if "made" in line else {"digest"}
    record = {name: x for name, x in line.items() if name not in apart}
    for part in PARTS:
        if "corpus" in line and isinstance(evaluation := record.get(part), dict) and "nll" in evaluation:
            record[part] = {"corpus": line["corpus"], "split": part, **evaluation}
    record = cast(Record, _filled(record))
    if made is not None:
        record["starts"] = [_merged(made, start) for start in line.get("starts", [{}])]
    if "digest" in line:
        record["config"] = configuration(line)
    return record


def configuration(line: Record) -> Record:
    """Return a run's whole configuration, with the fields of this version.

    Raises:
        ValueError: it is not what was run: the preset is another one now.
    """
    config = nested(_kept(_preset(line["preset"]), line["differs"]) | line["differs"])
    if (digest := _digest(config)) != line["digest"]:
        raise ValueError(
            f"{line['table']}, {line['row']}: the preset {line['preset']} has changed ({digest} in place of "
            f"{line['digest']}): put what it was into `differs`"
        )
    return config


def _configured(preset: str, config: Record) -> Record:
    """Return how a configuration differs from the preset's, with fields that only an older version had in `gone`."""
    was, now = flat(config), _flat(RunConfig.from_tree(config))
    other_kinds = {name: x for name, x in now.items() if name.endswith(".kind") and _preset(preset).get(name) != x}
    known = _kept(_preset(preset), other_kinds)
    differs = {name: x for name, x in now.items() if name not in known or known[name] != x}
    gone = {name: x for name, x in was.items() if name not in now}
    return {"differs": differs, "digest": _digest(nested(now)), **({"gone": gone} if gone else {})}


@cache
def _preset(name: str) -> Record:
    return _flat(find_preset(name).config)


def _flat(config: RunConfig) -> Record:
    fields: Record = json.loads(json.dumps(flat(config.to_tree())))
    return fields


def _kept(fields: Record, differs: Record) -> Record:
    """Return a preset's fields without those of parts of another kind."""
    parts = tuple(name.removesuffix("kind") for name in differs if name.endswith(".kind"))
    return {name: x for name, x in fields.items() if not (parts and name.startswith(parts))}


def _digest(config: Record) -> str:
    return hashlib.sha256(config_digest(config).encode()).hexdigest()[:8]


# --- what follows from sums and counts ---


def _exp(nats: float) -> float | None:
    return math.exp(nats) if nats < 700 else None


def _of_evaluation(sums: Record) -> Record:
    nll, tokens, shares = sums["nll"], sums["tokens"], sums.get("shares", {})
    numbers: Record = dict.fromkeys(NULL)
    numbers |= {"nll_per_token": nll / tokens, "bits_per_token": nll / tokens / math.log(2)}
    numbers |= {f"{kind}_share": sums[f"{kind}_tokens"] / tokens for kind in ("oov", "unk") if f"{kind}_tokens" in sums}
    if "without_unk" in shares:
        numbers["perplexity_without_unk"] = _exp(shares["without_unk"]["nll"] / shares["without_unk"]["count"])
    return numbers | {"perplexity": _exp(nll / tokens)}


def _of_share(sums: Record) -> Record:
    nats = sums["nll"] / sums["count"]
    return {"nats": nats, "bits": nats / math.log(2), "log10": -sums["nll"] / math.log(10), "perplexity": _exp(nats)}


def _of_counted(sums: Record) -> Record:
    return {"perplexity": _exp(sums["nll"] / sums["counted"])} | {
        "perplexity_per_predicted": _exp(sums["nll"] / sums["predicted"])
    }


DERIVED: dict[str, Callable[[Record], Record]] = {
    "tokens": _of_evaluation,
    "count": _of_share,
    "counted": _of_counted,
}
"""By the count beside a sum of nats (`nll`): what follows from both."""


def _derived(sums: Record) -> Record:
    kind = next((name for name in DERIVED if name in sums), None) if "nll" in sums else None
    return DERIVED[kind](sums) if kind else {}


def _implied(evaluation: Record) -> Record:
    """Return the shares of an evaluation whose sum or count it has itself."""
    shares = evaluation.get("shares", {}) if "tokens" in evaluation else {}
    sums = {name: {"nll": evaluation["nll"]} for name in ("words", "characters") if name in shares}
    return sums | ({"all": {"nll": evaluation["nll"], "count": evaluation["tokens"]}} if shares else {})


def _filled(value: Any) -> Any:
    if isinstance(value, list):
        return [_filled(x) for x in value]
    if not isinstance(value, dict):
        return value
    if implied := _implied(value):
        value = value | {"shares": _merged(implied, value["shares"])}
    inner = {name: _filled(x) for name, x in value.items()}
    return _derived(inner) | inner


def _pruned(value: Any) -> Any:
    """Leave out what `_filled` gives back to the last digit."""
    if isinstance(value, list):
        return [_pruned(x) for x in value]
    if not isinstance(value, dict):
        return value
    derived, implied = _derived(value), _implied(value)
    kept = {name: x for name, x in value.items() if name not in derived or derived[name] != x}
    inner = {name: _pruned(x) for name, x in kept.items()}
    if implied:
        inner["shares"] = _without(inner["shares"], implied)
        inner["shares"] = {name: x for name, x in inner["shares"].items() if x}
    return inner
