"""Programs that Hermes starts: each through the launcher, and without a private variable."""

import errno
import os
import re
import subprocess
import sys
import _posixsubprocess

PUBLIC = frozenset(
    """PATH HOME LANG LANGUAGE TZ TERM COLORTERM USER LOGNAME SHELL TMPDIR PWD HERMES_HOME SSL_CERT_FILE SSL_CERT_DIR
    REQUESTS_CA_BUNDLE CURL_CA_BUNDLE GIT_SSL_CAINFO NODE_EXTRA_CA_CERTS""".split()
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH")
_DOTENV_NAME = re.compile(rb"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=", re.M)


class Environment:
    """Decides by name which variables a started program may have."""

    def __init__(self, given, home):
        listed = given.get("EDGE_PRIVATE_NAMES")
        self._private = frozenset(given if listed is None else listed.split())
        self._dotenv = os.path.join(home, ".env")
        self._seen = None
        self._dotenv_names = frozenset()
        self._forked = False
        # A forked child is not Hermes to those who guard its home: it may not read the file, and keeps what Hermes knew.
        os.register_at_fork(before=self._read_dotenv, after_in_child=self._keep)

    def public(self, environment):
        self._read_dotenv()
        return {name: value for name, value in environment.items() if self._may_pass(name)}

    def _may_pass(self, name):
        if name in PUBLIC or name.startswith("LC_"):
            return True
        if name in self._private or name in self._dotenv_names or name.startswith(("EDGE_", "BUN_")):
            return False
        # execute_code gives its script the socket and the token of the tools' call-back.
        return not (name.startswith("HERMES_") and _SECRET.search(name) and not name.startswith("HERMES_RPC_"))

    def _keep(self):
        self._forked = True

    def _read_dotenv(self):
        if self._forked:
            return
        # Read again when it changed: a skill's setup may add a key while Hermes runs.
        try:
            status = os.stat(self._dotenv)
        except FileNotFoundError:
            self._seen, self._dotenv_names = None, frozenset()
            return
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            with open(self._dotenv, "rb") as file:
                text = file.read(1024 * 1024)
            self._dotenv_names = frozenset(name.decode() for name in _DOTENV_NAME.findall(text))
            self._seen = seen


class Launcher:
    """Starts programs as `confined-exec shell <n> <candidate 1..n> <argv…>`; directly when there is no launcher."""

    def __init__(self, path, environment, executions):
        self._path = path
        self._environment = environment
        self._executions = executions

    def install(self):
        subprocess._USE_POSIX_SPAWN = False
        subprocess._fork_exec = self._fork_exec(_posixsubprocess.fork_exec)
        _posixsubprocess.fork_exec = subprocess._fork_exec
        for module in (os, sys.modules["posix"]):
            module.execve = self._execve
            module.execv = self._execv
            module.posix_spawn = self._posix_spawn
            module.posix_spawnp = self._posix_spawnp
            module.system = self._system

    def _line(self, candidates, arguments):
        return [self._path, "shell", str(len(candidates)), *candidates, *arguments]

    def _public(self, environment):
        return self._environment.public(
            {os.fsdecode(name): value for name, value in (os.environ if environment is None else environment).items()}
        )

    @staticmethod
    def _require(candidates, directory="."):
        """The launcher always starts; a missing program must still be an error here, as it is without a launcher.

        Answers the program that will be executed.
        """
        problem = errno.ENOENT
        for candidate in candidates:
            path = os.path.join(os.fsdecode(directory), os.fsdecode(candidate))
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
            if os.path.lexists(path):
                problem = errno.EACCES
        name = os.fsdecode(candidates[0] if len(candidates) == 1 else os.path.basename(candidates[0]))
        raise OSError(problem, os.strerror(problem), name)

    def _fork_exec(self, real):
        def fork_exec(args, executables, close_fds, keep, cwd, env, *rest):
            given = os.environb if env is None else dict(entry.split(b"=", 1) for entry in env)
            public = self._environment.public({os.fsdecode(name): value for name, value in given.items()})
            env = [os.fsencode(name) + b"=" + value for name, value in public.items()]
            program, arguments = None, list(args)
            if cwd is None or os.path.isdir(cwd):  # A missing cwd is reported by the child, first, as always.
                try:
                    program = self._require(executables, "." if cwd is None else cwd)
                except OSError:
                    if self._path:
                        raise
            if self._path:
                args = [os.fsencode(part) for part in self._line(executables, arguments)]
                executables = (os.fsencode(self._path),)
            pid = real(args, executables, close_fds, keep, cwd, env, *rest)
            if program is not None:
                self._executions.started(pid, program, arguments, cwd)
            return pid

        return fork_exec

    def _prepare(self, path, arguments):
        """What is executed in place of a program: the launcher with a longer line of arguments."""
        if not self._path:
            return path, arguments
        if isinstance(path, int):
            raise PermissionError(errno.EPERM, "a program in a descriptor cannot be confined")
        self._require([path])
        return self._path, self._line([path], arguments)

    def _become(self, real, path, argv, environment):
        program, line = self._prepare(path, argv)
        ident = self._executions.started(os.getpid(), path, argv, None, own=True)
        try:
            real(program, line, self._public(environment))
        except OSError:
            self._executions.failed(os.getpid(), ident)
            raise

    def _spawn(self, real, path, argv, environment, options):
        program, line = self._prepare(path, argv)
        pid = real(program, line, self._public(environment), **options)
        self._executions.started(pid, path, argv, None)
        return pid

    def _execve(self, path, argv, env, _real=os.execve):
        self._become(_real, path, argv, env)

    def _execv(self, path, argv, _real=os.execve):
        self._become(_real, path, argv, None)

    def _posix_spawn(self, path, argv, env, *, _real=os.posix_spawn, **options):
        return self._spawn(_real, path, argv, env, options)

    def _posix_spawnp(self, path, argv, env, *, _real=os.posix_spawn, **options):
        found = [path] if os.path.dirname(path) else [os.path.join(place, path) for place in os.get_exec_path(env)]
        usable = [place for place in found if os.path.isfile(place) and os.access(place, os.X_OK)]
        self._require(found)
        return self._spawn(_real, usable[0], argv, env, options)

    def _system(self, command):
        status = subprocess.call(["/bin/sh", "-c", command])
        return status << 8 if status >= 0 else -status
