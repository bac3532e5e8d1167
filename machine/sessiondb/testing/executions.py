"""Starts programs while nobody reads the machine channel, then lets it be read, and prints what it saw as JSON.

Usage: python -I executions.py start.py (with HERMES_HOME set; descriptor 3 is read once a line comes on standard input)
"""

import gc
import importlib.util
import os
import subprocess
import sys
import threading
import time

spec = importlib.util.spec_from_file_location("edge_start", sys.argv[1])
start = importlib.util.module_from_spec(spec)
spec.loader.exec_module(start)

channel = start.Channel(3)
executions = start.Executions(lambda event, own: channel.tell(event))
executions.install()
os.register_at_fork(after_in_child=channel.in_forked_child)
start.Launcher(None, start.Environment(dict(os.environ), os.environ["HERMES_HOME"]), executions).install()

long = "x" * 15_000
for number in range(400):
    subprocess.run(["/bin/true", f"unread-{number}", long], check=True)


# Waited for by a finalizer, in several threads at once.
def drop():
    for number in range(20):
        subprocess.Popen(["/bin/true", "dropped"])
    time.sleep(0.2)
    gc.collect()
    subprocess._cleanup()


print("unread", flush=True)
sys.stdin.readline()
while channel._events or channel._unsent:
    channel._flush()
    time.sleep(0.01)
for number in range(20):
    subprocess.run(["/bin/true", f"read-{number}"], check=True)
    time.sleep(0.01)
threads = [threading.Thread(target=drop) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
pid, terminal = os.forkpty()
if pid == 0:
    os.closerange(3, 1024)  # As ptyprocess does.
    os.execv("/bin/sh", ["sh", "-c", "exit 4"])
while os.waitpid(pid, 0)[0] != pid:
    pass
sleeper = subprocess.Popen(["/bin/sleep", "1000"])
print("done", flush=True)
sys.stdin.readline()
os.kill(sleeper.pid, 9)
os._exit(0)
