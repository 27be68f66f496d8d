"""The report: results.json as one HTML file that needs nothing else, no network and no script.

    python3 -m comparison.report results.json OUT.html

Plots are matplotlib's, drawn into the page as SVG and coloured by its style sheet. So the file stays small, the plots follow
the reader's light or dark theme and turn light on paper, and their text can be read, searched and printed.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import sys

_FOLDER = pathlib.Path(__file__).parent


class ReportError(Exception):
    """The report cannot be made; the text says why, and what helps."""


def check_packages() -> None:
    """Raises ReportError when a Python module that the report needs is missing, so that nobody measures for an hour first."""
    for module in ("jinja2", "jsonschema", "matplotlib"):
        if importlib.util.find_spec(module) is None:
            raise ReportError(f"Python has no module {module}: install Debian's python3-{module} (scripts/setup --tests does) and run with "
                              f"/usr/bin/python3; this is {sys.executable}")


def write_report(results: dict, path: pathlib.Path) -> None:
    """Writes the report on `results`, the content of a results.json, to the file `path`; an older one is replaced when the
    new one is complete. Raises ReportError when `results` does not follow results.schema.json or a Python module is
    missing, OSError when the file cannot be written."""
    check_packages()
    import jsonschema

    from . import report_page  # matplotlib is slow to load, and only needed here
    schema = json.loads((_FOLDER / "results.schema.json").read_text(encoding="utf-8"))
    fault = jsonschema.exceptions.best_match(jsonschema.Draft7Validator(schema).iter_errors(results))
    if fault:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault.absolute_path)
        raise ReportError(f"not results of db_bench_ext: {place.lstrip('.') or 'the whole'}: {fault.message[:200]}")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(report_page.page(results), encoding="utf-8")
    os.replace(part, path)


def read(path: pathlib.Path) -> dict:
    """The content of a results.json, not yet checked against the schema. ReportError: not to be read, or no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise ReportError(f"cannot read {path}: {fault.strerror}") from fault
    except ValueError as fault:  # not UTF-8, or not JSON
        raise ReportError(f"{path} is not JSON: {fault}") from fault


def main() -> int:
    parser = argparse.ArgumentParser(prog="comparison.report", description="Renders a results.json of db_bench_ext as one HTML file.")
    parser.add_argument("results", type=pathlib.Path, help="the results.json")
    parser.add_argument("html", type=pathlib.Path, help="the file to write")
    arguments = parser.parse_args()
    try:
        write_report(read(arguments.results), arguments.html)
    except (ReportError, OSError) as fault:
        print(f"comparison.report: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
