"""``rtlab lab``: JupyterLab on a copy of the notebooks."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from rtlab.errors import ModelError, RtlabError, Unavailable

#: As ``python -m jupyterlab``, which would look for modules in the current folder first.
_START = (
    "import sys; del sys.path[0]; import runpy; "
    "runpy.run_module('jupyterlab', run_name='__main__', alter_sys=True)"
)


def lab(args: argparse.Namespace) -> int:
    """Open JupyterLab on a folder of notebooks, in place of this process where the system can.

    Raises:
        RtlabError: it is not installed, or the notebooks cannot be written.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise Unavailable(
            'Cannot open JupyterLab: package "jupyterlab" is not installed. Run pip install jupyterlab ipywidgets '
            "anywidget plotly netron."
        )
    folder = Path(args.folder).absolute()
    first = copy_notebooks(folder)
    # Not "jupyter lab", which runs the first jupyter-lab of PATH: that of another environment where this one is not
    # activated, whose kernels then lack rtlab or have another version of it.
    command = [
        sys.executable, "-c", _START, "--ip=127.0.0.1", f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{first}",
        # The other manager queries PyPI as soon as it is shown.
        "--LabApp.extension_manager=readonly",
    ]  # fmt: skip
    if args.port is not None:
        command += [f"--ServerApp.port={args.port}"]
    if args.no_browser:
        command += ["--no-browser"]
    if getattr(os, "geteuid", lambda: 1)() == 0:
        # Jupyter refuses to serve as root, which is the usual user in a container.
        command += ["--allow-root"]
    # JupyterLab asks on its first start whether to fetch news, over the corner of the notebook.
    config_folder = str(Path(__file__).parents[1] / "static")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
        filter(None, (config_folder, os.environ.get("JUPYTER_CONFIG_PATH")))
    )
    # It asks npm, where there is one, for a folder; npm asks its registry for news of itself now and then.
    os.environ.setdefault("NPM_CONFIG_UPDATE_NOTIFIER", "false")
    print(f"rtlab: notebooks are in {folder}; stop with Ctrl-C", file=sys.stderr)
    if os.name == "posix":
        # In place of this process, so that ending this command ends the server.
        os.execv(sys.executable, command)  # noqa: S606 - the interpreter that runs us, with a fixed list
    return subprocess.call(command)


def copy_notebooks(folder: Path) -> str:
    """Copy the packaged notebooks that are not there yet; returns the name of the first one.

    A notebook that exists is the user's own by now and stays as it is.

    Raises:
        ModelError: the installation carries no notebooks.
        RtlabError: they cannot be written there.
    """
    here = Path(__file__).parents[1]
    home = next((h for h in (here / "_share" / "notebooks", here.parent / "notebooks") if h.is_dir()), None)
    names = sorted(p.name for p in home.glob("*.ipynb")) if home else []
    if home is None or not names:
        raise ModelError("Cannot open the notebooks: this installation carries none. Install rtlab again.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            with contextlib.suppress(FileExistsError), (folder / name).open("xb") as file:
                file.write((home / name).read_bytes())
    except OSError as error:
        raise RtlabError(
            f'Cannot copy the notebooks to "{folder}": {error.strerror}. Name a folder that is yours to write to: '
            "rtlab lab FOLDER."
        ) from error
    return names[0]
