"""The direction of imports between the folders, as pyproject.toml declares it."""

import contextlib
import io
import pathlib

from importlinter import cli

CHECKOUT = pathlib.Path(__file__).resolve().parents[1]


def test_every_import_goes_down_the_layers(monkeypatch):
    monkeypatch.chdir(CHECKOUT)
    # It would silence all loggers that exist, for whichever tests this process runs next.
    monkeypatch.setattr("logging.config.dictConfig", lambda _: None)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        status = cli.lint_imports(config_filename="pyproject.toml", no_cache=True, no_logo=True)
    assert status == cli.EXIT_STATUS_SUCCESS, output.getvalue()
