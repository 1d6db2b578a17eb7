"""Write the tables of the pages: `python -m results`; `--check` names the pages that differ, and exits 1.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; NAME is one of `results.tables.TABLES`.
"""

import argparse
import re
import sys

from results.records import HERE
from results.tables import TABLES
from spanlm.store.plain import several

PAGES = (*sorted(HERE.glob("*.md")), HERE.parent / "docs" / "scale.md")
MARKED = re.compile(r"(?P<begin><!-- table: (?P<name>.+?) -->).*?<!-- end -->", re.DOTALL)


def _table(match: re.Match[str]) -> str:
    if match["name"] not in TABLES:
        sys.exit(f"no such table: {match['name']}; tables are {', '.join(TABLES)}")
    head, *rows = TABLES[match["name"]]()
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join((match["begin"], "", *(f"| {' | '.join(line)} |" for line in lines), "", "<!-- end -->"))


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(prog="python -m results", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page differs")
    check = parser.parse_args().check
    old = {page: page.read_text(encoding="utf-8") for page in PAGES}
    new = {page: MARKED.sub(_table, text) for page, text in old.items()}
    differing = [page for page in PAGES if new[page] != old[page]]
    for page in differing if not check else ():
        page.write_text(new[page], encoding="utf-8")
    if check and differing:
        names = ", ".join(page.name for page in differing)
        sys.exit(f"{several(len(differing), 'page')} not as `python -m results` writes: {names}")


if __name__ == "__main__":
    main()
