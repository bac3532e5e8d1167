"""Starts programs in every way that Python has, as start.py lets it, and prints what came of it as JSON.

Usage: python -I programs.py start.py LAUNCHER|- (with HERMES_HOME set)
"""

import asyncio
import ctypes
import importlib.util
import json
import os
import pty
import subprocess
import sys

spec = importlib.util.spec_from_file_location("edge_start", sys.argv[1])
start = importlib.util.module_from_spec(spec)
spec.loader.exec_module(start)
start.make_not_dumpable()
launcher = None if sys.argv[2] == "-" else sys.argv[2]
told = []
executions = start.Executions(lambda event, own: told.append(event))
executions.install()
start.Launcher(launcher, start.Environment(dict(os.environ), os.environ["HERMES_HOME"]), executions).install()

os.environ["SET_LATER"] = "by hermes"
SHOW = "echo $0:$1:${PRIVATE-none}:${DOTENV-none}:${EDGE_X-none}:${HERMES_API_KEY-none}:${HERMES_RPC_TOKEN-none}:${SET_LATER-none}:${LC_ALL-none}"
ARGV = ["/bin/sh", "-c", SHOW, "name", "argument"]
ENV = {**os.environ, "EDGE_X": "1", "HERMES_API_KEY": "k", "HERMES_RPC_TOKEN": "t"}
read, write = os.pipe()


def spawned(start_it):
    """Output of a program that start_it() starts with its standard output into the pipe; answers its pid."""
    pid = start_it()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return [status, os.read(read, 65536).decode()]


def forked(run):
    def start_it():
        pid = os.fork()
        if pid == 0:
            try:
                os.dup2(write, 1)
                run()
            except OSError as error:
                os.write(1, f"{type(error).__name__}".encode())
            os._exit(9)
        return pid

    return spawned(start_it)


def on_terminal():
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe("sh", ["sh", *ARGV[1:]], ENV)
    out = b""
    try:
        while chunk := os.read(fd, 4096):
            out += chunk
    except OSError:
        pass  # The end of a terminal is EIO.
    os.waitpid(pid, 0)
    return out.decode()


async def asynchronous():
    process = await asyncio.create_subprocess_exec(*ARGV, env=ENV, stdout=subprocess.PIPE)
    return (await process.communicate())[0].decode()


def failing(*args, **options):
    try:
        return subprocess.run(*args, capture_output=True, **options).returncode
    except OSError as error:
        return [type(error).__name__, error.errno, error.filename]


def output(*args, **options):
    return subprocess.run(*args, capture_output=True, text=True, **options).stdout


os.makedirs("bin", exist_ok=True)
with open("bin/plain", "w") as file:
    file.write("#!/bin/sh\necho plain $*\n")
with open("bin/tool", "w") as file:
    file.write("#!/bin/sh\necho tool $*\n")
os.chmod("bin/tool", 0o755)
here = os.getcwd()
file_actions = [(os.POSIX_SPAWN_DUP2, write, 1)]
outcome = {
    "run": output(ARGV, env=ENV),
    "inherited": output(ARGV),
    "shell": output("echo via $0; exit 3", shell=True),
    "executable": output(["other-name", *ARGV[1:]], executable="/bin/sh", env=ENV),
    "path": output(["tool", "x"], env={"PATH": f"/nonexistent:{here}/bin"}),
    "relative to cwd": output(["./tool", "y"], cwd="bin"),
    "bytes": output([b"/bin/echo", b"\xff".hex().encode()]),
    "new session": output(["/bin/sh", "-c", "test $(cut -d' ' -f6 /proc/$$/stat) = $$ && echo leader"], start_new_session=True),
    "descriptors": output(["/bin/sh", "-c", "ls /proc/self/fd | wc -l"], pass_fds=[write]) != "",
    "missing": failing(["no-such-program"]),
    "missing path": failing(["/no/such"]),
    "not executable": failing([f"{here}/bin/plain"]),
    "directory": failing([here]),
    "missing cwd": failing(["/bin/true"], cwd="/no/such"),
    "exit code": failing(["/bin/sh", "-c", "exit 7"]),
    "signal": failing(["/bin/sh", "-c", "kill -9 $$"]),
    "popen": os.popen("echo popen $1").read(),
    "system": [os.waitstatus_to_exitcode(os.system("exit 5")), os.waitstatus_to_exitcode(os.system("kill -15 $$"))],
    "spawnv": os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "-c", "exit 6"]),
    "execve": forked(lambda: os.execve("/bin/sh", ARGV, ENV)),
    "execv": forked(lambda: os.execv("/bin/sh", ARGV)),
    "execlp": forked(lambda: os.execlp("sh", *ARGV)),
    "execvp missing": forked(lambda: os.execvp("no-such-program", ["x"])),
    "posix_spawn": spawned(lambda: os.posix_spawn("/bin/sh", ARGV, ENV, file_actions=file_actions)),
    "posix_spawnp": spawned(lambda: os.posix_spawnp("sh", ARGV, ENV, file_actions=file_actions)),
    "terminal": on_terminal(),
    "asyncio": asyncio.run(asynchronous()),
    "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
}
with open(os.path.join(os.environ["HERMES_HOME"], ".env"), "a") as file:
    file.write("export SET_LATER = x\n")
outcome["after a change of .env"] = output(ARGV)
executions.hear_children()


def told_of(ident):
    """How it ended, as the machine would hear it."""
    ends = [{name: value for name, value in event.items() if name not in "it"} for event in told if event["i"] == ident and "a" not in event]
    return ends[0] if len(ends) == 1 else ends


failed = [event["i"] for event in told if "x" in event]
outcome["executions"] = [
    [event["f"], event["a"], event["d"], told_of(event["i"])] for event in told if "a" in event and event["i"] not in failed
]
outcome["in order"] = all("a" in event or event["i"] in [other["i"] for other in told[:at]] for at, event in enumerate(told))
with open(os.path.join(os.environ["HERMES_HOME"], ".env"), "a") as file:
    file.write("GIVEN_LATER = x\n")


def without_home():
    os.rename(os.environ["HERMES_HOME"], os.environ["HERMES_HOME"] + ".away")
    os.execve("/bin/sh", ["/bin/sh", "-c", "echo ${DOTENV-none}:${GIVEN_LATER-none}"], {**ENV, "GIVEN_LATER": "secret"})


# As the gate of a real home has it: what a forked child starts gets what Hermes would have given at the fork.
outcome["a forked child that cannot read .env"] = forked(without_home)
print(json.dumps(outcome))
