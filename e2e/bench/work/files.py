"""The work of `bench files`, the same program on every kind of file system. One JSON line in, one out; times by one clock."""
import ctypes
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
SMALL_FILES = 2000
REPOSITORY_FILES = 500
BIG_BYTES = 100 * 1000 * 1000
BLOCK = 1 << 20


def sync_all(directory):
    """Everything written below is durable afterwards."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        # A failed write-back is told once, and Rust AgentFS has one after `git init`: files that are gone before they are written.
        if LIBC.syncfs(fd) != 0 and LIBC.syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")
        os.fsync(fd)
    finally:
        os.close(fd)


def small_text(number):
    return (f"file {number}: " + "the quick brown fox jumps over the lazy dog. " * (10 + number % 40)).encode()


def write_small(path, data):
    # Not Python's own files: those ask for sizes and terminals too, which no other program does.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(fd, data)
    os.close(fd)


def create_small(root):
    for number in range(SMALL_FILES):
        if number % 100 == 0:
            os.makedirs(f"{root}/small/d{number // 100}", exist_ok=True)
        write_small(f"{root}/small/d{number // 100}/f{number}.txt", small_text(number))
    sync_all(root)
    return SMALL_FILES


def touch(root):
    os.stat(f"{root}/small")


def walk_stat(root):
    count, waiting = 0, [f"{root}/small"]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                count += 1
                entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return count


def read_small(root):
    for number in range(SMALL_FILES):
        fd = os.open(f"{root}/small/d{number // 100}/f{number}.txt", os.O_RDONLY)
        if os.read(fd, 1 << 16) != small_text(number):
            raise ValueError(f"file {number} is not what was written")
        os.close(fd)
    return SMALL_FILES


def write_file(path, block):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for at in range(0, BIG_BYTES, BLOCK):
        os.write(fd, block[: min(BLOCK, BIG_BYTES - at)])
    os.fsync(fd)
    os.close(fd)
    return BIG_BYTES / 1e6


def write_random(root):
    return write_file(f"{root}/random.bin", RANDOM)


def write_text(root):
    return write_file(f"{root}/text.txt", TEXT)


def read_random(root):
    fd, at = os.open(f"{root}/random.bin", os.O_RDONLY), 0
    while data := os.read(fd, BLOCK):
        if data[:64] != RANDOM[:64]:
            raise ValueError("not what was written")
        at += len(data)
    os.close(fd)
    if at != BIG_BYTES:
        raise ValueError(f"{at} bytes")
    return BIG_BYTES / 1e6


def git(root, *words):
    command = ["/usr/bin/git", "-c", "user.name=bench", "-c", "user.email=bench@example.test", "-C", f"{root}/repo", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"})


def make_repository(root):
    os.makedirs(f"{root}/repo")
    git(root, "init", "-q")
    for number in range(REPOSITORY_FILES):
        os.makedirs(f"{root}/repo/src/d{number // 50}", exist_ok=True)
        with open(f"{root}/repo/src/d{number // 50}/f{number}.txt", "wb") as file:
            file.write(small_text(number))
    sync_all(root)


def git_add(root):
    git(root, "add", ".")
    sync_all(root)


def git_commit(root):
    git(root, "commit", "-q", "-m", "first")
    sync_all(root)


def git_status(root):
    git(root, "status", "--porcelain")


def make_tar(root):
    subprocess.run(["/usr/bin/tar", "cf", f"{root}/src.tar", "-C", f"{root}/repo", "src"], check=True)
    sync_all(root)


def untar(root):
    os.makedirs(f"{root}/untarred")
    subprocess.run(["/usr/bin/tar", "xf", f"{root}/src.tar", "-C", f"{root}/untarred"], check=True)
    sync_all(root)


def grep(root):
    command = ["/usr/bin/grep", "-rc", "no such words anywhere", f"{root}/small", f"{root}/repo", f"{root}/untarred"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)


def remove_trees(root):
    subprocess.run(["/usr/bin/rm", "-rf", f"{root}/small", f"{root}/repo", f"{root}/untarred"], check=True)
    sync_all(root)


def remove_big(root):
    subprocess.run(["/usr/bin/rm", "-f", f"{root}/random.bin", f"{root}/text.txt", f"{root}/src.tar"], check=True)
    sync_all(root)


def npm(directory):
    os.makedirs(directory)
    shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), "npm.json"), f"{directory}/package.json")
    command = ["/usr/bin/npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    command += ["--cache", "/tmp/eg-npm-cache"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=directory, env={"HOME": "/tmp", "PATH": "/usr/bin:/bin"})


def npm_fetch(_root):
    """Fills npm's cache, which is not on the file system that is measured."""
    npm("/tmp/eg-npm")
    shutil.rmtree("/tmp/eg-npm")


def npm_install(root):
    """About 300 packages: those of the manifest beside this program, and what they need."""
    npm(f"{root}/npm")
    sync_all(root)
    return sum(len(files) for _, _, files in os.walk(f"{root}/npm/node_modules"))


def npm_remove(root):
    subprocess.run(["/usr/bin/rm", "-rf", f"{root}/npm"], check=True)
    sync_all(root)


def copy_for(root, seconds):
    """Copies gigabytes until the time is over; returns MB written."""
    end, written, number = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        fd = os.open(f"{root}/copy{number % 4}.bin", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for _ in range(256):
            os.write(fd, RANDOM)
            written += BLOCK
            if time.monotonic() >= end:
                break
        os.close(fd)
        number += 1
    return written / 1e6


def make_tree(root):
    """What `stat_for` looks at."""
    for number in range(1000):
        os.makedirs(f"{root}/tree/d{number // 50}", exist_ok=True)
        with open(f"{root}/tree/d{number // 50}/f{number}", "wb") as file:
            file.write(b"x")
    sync_all(root)


def stat_for(root, seconds):
    """Milliseconds of one `stat` each, of one made anew each tenth time; some every 5 ms."""
    samples, number, end = [], 0, time.monotonic() + seconds
    while time.monotonic() < end:
        number += 1
        path = f"{root}/tree/d{number % 20}/f{(number % 20) * 50 + number % 50}"
        if number % 10 == 0:
            path = f"{root}/tree/none{number}"
        started = time.monotonic()
        try:
            os.stat(path)
        except FileNotFoundError:
            pass
        samples.append((time.monotonic() - started) * 1000)
        time.sleep(0.005)
    return samples


def cpu():
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def main():
    for line in sys.stdin:
        order = json.loads(line)
        arguments = order.get("arguments", [])
        cpu_before, started = cpu(), time.monotonic()
        try:
            value = globals()[order["work"]](order["root"], *arguments)
            answer = {"ms": (time.monotonic() - started) * 1000, "cpuMs": (cpu() - cpu_before) * 1000, "value": value}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


RANDOM = random.Random(7).randbytes(BLOCK)
TEXT = (b"All work and no play makes a dull benchmark, said one file to another.\n" * (BLOCK // 70))[:BLOCK]
main()
