"""Starts Hermes' own ACP server inside a holder: `python -I start.py`, in place of the console script `hermes-acp`.

Hermes itself is not changed. Before it is imported, four things of the Python standard library are replaced:

- the process is made not dumpable, so that no program it starts can read its environment or memory;
- `sqlite3.connect` for exactly `$HERMES_HOME/state.db` answers a connection whose SQL goes over descriptor 3 to the
  machine, which keeps SessionDB (architecture, "SessionDB"); every other database stays an ordinary SQLite file;
- every program that Hermes starts goes through the launcher `confined-exec shell` and gets no private variable;
- the machine is told of each such program and of its end, for the ledger.

Variables: HERMES_HOME (required). EDGE_LAUNCHER: path of confined-exec; without it and without the file
/opt/edge/confined-exec, programs start directly (tests). EDGE_PRIVATE_NAMES: names of the private variables, separated by
white space; without it everything given at the start is private except `PUBLIC`. EDGE_SELFCHECK=1: print what was
replaced in Hermes' modules as JSON (it must be nothing) and exit.

A holder is given one file: bunfs-assets/start-script.ts joins those of this directory, this one last, without their imports
of one another.
"""

import ctypes
import json
import os
import sys

from .channel import Channel
from .connection import replace_connect
from .executions import Executions
from .programs import Environment, Launcher

FD = 3
DEFAULT_LAUNCHER = "/opt/edge/confined-exec"
GUARDED = ("acp_adapter", "agent", "run_agent", "toolsets")


def replaced_in_hermes():
    """Every attribute of Hermes' guarded modules whose code does not come from an installed file of its own."""
    import importlib
    import sysconfig

    for name in ("acp_adapter.entry", "acp_adapter.server", "run_agent", "toolsets", "agent.conversation_loop"):
        importlib.import_module(name)
    paths = sysconfig.get_paths()
    installed = tuple({paths[kind] + os.sep for kind in ("purelib", "platlib", "stdlib", "platstdlib")})
    found, seen = [], set()

    def look(owner, label, depth):
        for name, value in list(vars(owner).items()):
            value = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
            code = getattr(value, "__code__", None)
            file = getattr(code, "co_filename", None)
            # "<…>" is code that the standard library generates, as for dataclasses; ours has a file.
            if file is not None and not file.startswith((*installed, "<")):
                found.append({"attribute": f"{label}.{name}", "file": file})
            if isinstance(value, type) and depth < 4 and value not in seen and value.__module__.split(".")[0] in GUARDED:
                seen.add(value)
                look(value, f"{label}.{name}", depth + 1)

    modules = [name for name in list(sys.modules) if name.split(".")[0] in GUARDED]
    for name in modules:
        module = sys.modules[name]
        if not (getattr(module, "__file__", None) or "").startswith(installed):
            found.append({"attribute": name, "file": getattr(module, "__file__", None)})
        look(module, name, 0)
    return {"modules": len(modules), "replaced": found}


def make_not_dumpable():
    """No program of the same user may read this process' environment and memory in /proc, or trace it."""
    PR_SET_DUMPABLE = 4
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        sys.exit(f"start.py: prctl(PR_SET_DUMPABLE): {os.strerror(ctypes.get_errno())}")


def main():
    make_not_dumpable()
    home = os.environ.get("HERMES_HOME")
    if not home:
        sys.exit("start.py: HERMES_HOME is not set")
    try:
        os.fstat(FD)
    except OSError:
        sys.exit(f"start.py: descriptor {FD}, the machine channel, is not open")
    channel = Channel(FD)
    os.register_at_fork(after_in_child=channel.in_forked_child)
    replace_connect(channel, home)
    launcher = os.environ.get("EDGE_LAUNCHER") or (DEFAULT_LAUNCHER if os.path.exists(DEFAULT_LAUNCHER) else None)
    executions = Executions(lambda event, own: channel.tell(event))
    executions.install()
    channel.before_request = executions.hear_children
    Launcher(launcher, Environment(dict(os.environ), home), executions).install()
    sys.argv[0] = "hermes-acp"
    if os.environ.get("EDGE_SELFCHECK") == "1":
        print(json.dumps(replaced_in_hermes()))
        return 0
    from acp_adapter.entry import main as hermes_acp

    return hermes_acp()


if __name__ == "__main__":
    sys.exit(main())
