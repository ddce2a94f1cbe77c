#!/usr/bin/env python3
"""Puts libtorch 2.13.0, PyTorch's C++ libraries, into .libtorch/ once, for building and running lathe-trainer.

The first of these that is there is taken:
  1. LIBTORCH in the environment: checked, used where it is
  2. PyTorch 2.13.0 installed for this python3: linked to, not copied
  3. PyPI's wheel, by `pip download` (never `pip install`)
  4. pytorch.org's archive
On a machine with an NVIDIA driver the CUDA part and NVIDIA's wheels come too; elsewhere only the CPU part is kept.

LATHE_LIBTORCH_SOURCE  python, pypi or pytorch.org: only that one; or the path or URL of a libtorch zip of your own
LATHE_LIBTORCH_CUDA    1 or 0: take or leave the CUDA part, whatever driver is here

Standard library only, Python 3.8 or later. An interrupted run leaves .libtorch/partial/; the next one goes on from it.
"""

import contextlib
import errno
import fcntl
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import wheels
from wheels import Failure

VERSION = "2.13.0"  # what tch 0.26 is written for; torch-sys refuses others
HOME = wheels.ROOT / ".libtorch"
# PyPI's only Linux build is the CUDA one, whose libtorch_cpu.so wants these two libraries even where no GPU is used.
CPU_WHEELS = ["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cupti==13.0.85"]
CPU_WHEELS_KEEP = ("libcudart.so", "libcupti.so")
CUDA_WHEELS = ("cuda-toolkit", "nvidia-")  # of the wheel's requirements; the others serve Python only
CUDA_LIBRARIES = ("libtorch_cuda", "libc10_cuda", "libcaffe2_nvrtc", "libtorch_nvshmem")
PYTHON_LIBRARIES = ("libtorch_python", "libtorch_global_deps", "libshm")
ARCHIVE = "https://download.pytorch.org/libtorch/{flavour}/libtorch-shared-with-deps-{version}%2B{flavour}.zip"
SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
GIB = 2**30


def say(text):
    print("libtorch: " + text, flush=True)


def main(home=HOME):
    if len(sys.argv) > 1:
        print(__doc__.strip())
        return
    torch = home / "torch"
    given = os.environ.get("LIBTORCH")
    if given and Path(given).absolute() != torch:
        use(Path(given), home)
        return
    done = recorded(home)
    if done:
        say("%s (%s) is in %s" % (VERSION, done["what"], shown(home)))
        if done["part"] == "cpu" and not torch.is_symlink() and wants_cuda():
            say("an NVIDIA driver is here now; remove %s and run this again for the CUDA part" % shown(home))
        return
    home.mkdir(parents=True, exist_ok=True)
    with alone(home):
        if recorded(home):
            return
        fetch(home)


def recorded(home):
    """What an earlier run put there, if it came to its end and is still there."""
    try:
        done = json.loads((home / "complete.json").read_text())
    except (OSError, ValueError):
        return None
    return done if done.get("version") == VERSION and (home / "torch/lib" / ("libtorch_cpu" + SUFFIX)).exists() else None


@contextlib.contextmanager
def alone(home):
    with open(home / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another run is fetching it; waiting for that one")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def use(given, home):
    """LIBTORCH is the user's: say what is wrong with it, or link to it so that a later build without LIBTORCH finds it."""
    problem = flaw(given) if given.is_absolute() else "the build needs an absolute path"
    if problem:
        raise Failure(
            "LIBTORCH is %s, but %s\n  point it at libtorch %s, or unset it and run ./dev libtorch, which fetches the right one"
            % (given, problem, VERSION)
        )
    say("%s in LIBTORCH=%s" % (VERSION, given))
    if not (home / "torch").exists():
        home.mkdir(parents=True, exist_ok=True)
        with alone(home):
            link(given, home)


def flaw(folder):
    """What keeps a libtorch folder from being used, or None."""
    if not folder.is_dir():
        return "there is no such folder"
    libraries = ["lib/%s%s" % (name, SUFFIX) for name in ("libtorch_cpu", "libtorch", "libc10")]
    for needed in libraries + ["include/torch/csrc/api/include/torch/torch.h"]:
        if not (folder / needed).exists():
            return "it has no " + needed
    version = version_of(folder)
    if version != VERSION:
        return "that is PyTorch %s; Lathe needs %s" % (version or "of an unknown version", VERSION)
    return None


def version_of(folder):
    """2.13.0 of a wheel's version.py, an archive's build-version or the headers' version.h; None if none tells."""
    for name, pattern in (
        ("version.py", r"^__version__ = '([\d.]+)"),
        ("build-version", r"^([\d.]+)"),
        ("include/torch/headeronly/version.h", r'#define TORCH_VERSION [\\\s]*"([\d.]+)'),
    ):
        try:
            found = re.search(pattern, (folder / name).read_text(), re.MULTILINE)
        except OSError:
            continue
        if found:
            return found.group(1)
    return None


def link(target, home):
    clear(home)
    (home / "torch").symlink_to(target.resolve(), target_is_directory=True)
    record(home, "cuda" if (target / "lib/libtorch_cuda.so").exists() else "cpu", "a link to %s" % target)


def fetch(home):
    started = time.monotonic()
    if platform.system() != "Linux":
        raise Failure("this fetches Linux builds only; pip install torch==%s and set LIBTORCH to its torch folder" % VERSION)
    compilers_work(home)
    cuda = wants_cuda()
    needed = 9 * GIB if cuda else int(1.7 * GIB)
    if shutil.disk_usage(home).free < needed:
        raise Failure("%s has less than %.1f GB free for the download and its unpacked libraries" % (shown(home), needed / 1e9))
    say("PyTorch %s's C++ libraries are needed; putting them into %s, once" % (VERSION, shown(home)))

    wanted = os.environ.get("LATHE_LIBTORCH_SOURCE", "")
    sources = {"python": from_python, "pypi": from_pypi, "pytorch.org": from_pytorch_org}
    if wanted and wanted not in sources:
        sources = {wanted: lambda home, cuda: from_archive(wanted, home, cuda)}
    elif wanted:
        sources = {wanted: sources[wanted]}
    for name, source in sources.items():
        try:
            if source(home, cuda):
                size = sum(file.stat().st_size for file in home.rglob("*") if not file.is_symlink())
                say("done in %.0f s; %s holds %.0f MB" % (time.monotonic() - started, shown(home), size / 1e6))
                return
        except (Failure, OSError, zipfile.BadZipFile) as failure:
            if getattr(failure, "errno", None) == errno.ENOSPC:
                raise Failure("the disk of %s is full" % shown(home))
            say("%s: %s" % (name, failure))
    raise Failure(
        "no libtorch %s could be had from %s\n" % (VERSION, " or ".join(sources))
        + "  is a proxy needed? pip and this script heed https_proxy, pip also PIP_INDEX_URL\n"
        + "  no network? set LIBTORCH to a folder with libtorch %s, or LATHE_LIBTORCH_SOURCE to its zip" % VERSION
    )


def compilers_work(home):
    """Tried before the download: both are needed to build against libtorch, and cc for settle() too."""
    cxx = os.environ.get("CXX") or next(filter(shutil.which, ["c++", "g++", "clang++"]), "c++")
    for compiler in ("cc", cxx):
        if not wheels.runs(empty_library(compiler, home / "try.so")):
            raise Failure(
                "building against it needs a C++ compiler, and %s does not work" % compiler
                + " (Debian and Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++)"
            )
    (home / "try.so").unlink()


def empty_library(compiler, path):
    """The command that makes a library named libtorch.so with nothing in it."""
    language = "c++" if "+" in compiler else "c"
    return compiler.split() + ["-shared", "-fPIC", "-Wl,-soname,libtorch.so", "-o", str(path), "-x", language, os.devnull]


def wants_cuda():
    forced = os.environ.get("LATHE_LIBTORCH_CUDA")
    if forced:
        return forced != "0"
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def from_python(home, _cuda):
    """PyTorch of this python3, found without running it: importing takes seconds and may print."""
    found = importlib.util.find_spec("torch")
    if not found or not found.origin:
        return False
    folder = Path(found.origin).parent
    problem = flaw(folder) or does_not_load(folder / "lib/libtorch_cpu.so")
    if problem:
        say("%s is passed over: %s" % (folder, problem))
        return False
    link(folder, home)
    say("using the PyTorch installed in %s" % folder)
    return True


def from_pypi(home, cuda):
    partial = home / "partial"
    kept = partial / "wheels"
    if not list(kept.glob("torch-*.whl")):
        say("downloading from PyPI with pip: 540 MB" + (", then about 2 GB of NVIDIA's libraries" if cuda else ""))
        clock = time.monotonic()
        wheels.download(
            ["torch==" + VERSION] + ([] if cuda else CPU_WHEELS),
            kept,
            partial / "pip",
            ["--no-deps"] + wheels.any_python_tags(),
        )
        say("downloaded in %.0f s" % (time.monotonic() - clock))
    (torch_wheel,) = kept.glob("torch-*.whl")
    if cuda and not list(kept.glob("nvidia_*.whl")):
        clock = time.monotonic()
        wheels.download(cuda_requirements(torch_wheel), kept, partial / "pip", wheels.any_python_tags())
        say("NVIDIA's libraries downloaded in %.0f s" % (time.monotonic() - clock))
    elif not cuda and not list(kept.glob("nvidia_cuda_*.whl")):
        wheels.download(CPU_WHEELS, kept, partial / "pip", ["--no-deps"] + wheels.any_python_tags())

    say("unpacking the %s part" % ("CUDA and CPU" if cuda else "CPU"))
    unpacked = emptied(partial / "unpacked")
    try:
        unzip(torch_wheel, unpacked, lambda name: torch_file(name, cuda))
        for wheel in kept.glob("nvidia_*.whl"):
            unzip(wheel, unpacked, lambda name: library(name) and (cuda or Path(name).name.startswith(CPU_WHEELS_KEEP)))
    except zipfile.BadZipFile:
        shutil.rmtree(kept)  # pip had checked them: the disk changed them since, so get them anew
        raise
    settle(unpacked, home, cuda, "the CUDA and CPU parts" if cuda else "the CPU part")
    return True


def cuda_requirements(torch_wheel):
    with zipfile.ZipFile(torch_wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    required = re.findall(r"^Requires-Dist: (.+)$", text, re.MULTILINE)
    return [r for r in required if r.startswith(CUDA_WHEELS)]


def torch_file(name, cuda):
    if name.startswith("torch/lib/"):
        left_out = PYTHON_LIBRARIES + (() if cuda else CUDA_LIBRARIES)
        return library(name) and not Path(name).name.startswith(left_out)
    return name.startswith(("torch/include/", "torch.libs/")) or name == "torch/version.py"


def library(name):
    return "/lib" in name and re.search(r"\.so(\.|$)", name) is not None


def from_pytorch_org(home, cuda):
    if platform.machine() != "x86_64":
        say("pytorch.org has libtorch for x86_64 only")
        return False
    url = ARCHIVE.format(flavour="cu130" if cuda else "cpu", version=VERSION)
    return from_archive(url, home, cuda)


def from_archive(source, home, cuda):
    """A libtorch zip: lib/ and include/ under one folder, as pytorch.org makes them."""
    archive = Path(source)
    if "://" in source:
        archive = home / "partial" / source.rsplit("/", 1)[1]
        download(source, archive)
    elif not archive.exists():
        raise Failure("there is no file %s" % source)
    say("unpacking %s" % archive.name)
    unpacked = emptied(home / "partial" / "unpacked")
    try:
        unzip(archive, unpacked, lambda name: library(name) or "/include/" in name or name.endswith("/build-version"))
    except zipfile.BadZipFile:
        if "://" in source:
            archive.unlink()
        raise
    tops = list(unpacked.iterdir())
    if len(tops) != 1:
        raise Failure("%s is not a libtorch archive" % source)
    os.rename(str(tops[0]), str(unpacked / "torch"))
    with_cuda = (unpacked / "torch/lib/libtorch_cuda.so").exists()
    settle(unpacked, home, with_cuda, "from %s" % archive.name)
    return True


def download(url, target):
    """Downloads to a name of its own, going on where an earlier try broke off, and renames when whole."""
    if target.exists():
        return
    part = target.with_name(target.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    have = part.stat().st_size if part.exists() else 0
    say("downloading %s%s" % (url, " from byte %d on" % have if have else ""))
    request = urllib.request.Request(url, headers={"Range": "bytes=%d-" % have} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # what is there is not the beginning of this file
            raise
        part.unlink()
        return download(url, target)
    with response:
        resumed = response.status == 206
        expected = response.headers.get("Content-Length")
        with open(part, "ab" if resumed else "wb") as file:
            start = file.tell()
            shutil.copyfileobj(response, file, 2**20)
            got = file.tell() - start
    if expected is not None and got != int(expected):
        raise Failure("the connection broke after %d of %s bytes; run this again to go on" % (got, expected))
    os.replace(str(part), str(target))


def unzip(archive, folder, wanted):
    with zipfile.ZipFile(archive) as opened:
        for entry in opened.infolist():
            if not entry.is_dir() and wanted(entry.filename):
                opened.extract(entry, str(folder))


def settle(unpacked, home, cuda, what):
    """Makes the libraries link and load here, proves it, and moves them to their place; the record is written last."""
    torch = unpacked / "torch"
    problem = flaw(torch)
    if problem:
        raise Failure("what was unpacked is not usable: %s" % problem)
    if not cuda:
        # The CUDA build's libtorch.so only names other libraries, libtorch_cuda.so among them, which is not here.
        stub = torch / "lib/libtorch.so"
        stub.unlink()
        if not wheels.runs(empty_library("cc", stub)):
            raise Failure("cc could not make %s" % stub)
    cpu = torch / "lib/libtorch_cpu.so"
    before = cpu.stat().st_size
    slim = cpu.with_name("slim.so")
    # 90 MB of symbols that only a debugger reads. Some versions of strip break libraries, so the result is tried.
    if shutil.which("strip") and wheels.runs(["strip", "--strip-unneeded", "-o", str(slim), str(cpu)]):
        if does_not_load(slim) is None:
            os.replace(str(slim), str(cpu))
            say("stripped libtorch_cpu.so from %.0f to %.0f MB" % (before / 1e6, cpu.stat().st_size / 1e6))
        else:
            slim.unlink()
    problem = does_not_load(cpu)
    if problem:
        raise Failure("libtorch does not load on this machine: %s" % problem)
    clear(home)
    for item in sorted(unpacked.iterdir()):
        os.rename(str(item), str(home / item.name))
    record(home, "cuda" if cuda else "cpu", what)
    shutil.rmtree(home / "partial", ignore_errors=True)


def does_not_load(library_file):
    """The loader's complaint, or None. In a process of its own: a bad library may end it."""
    tried = subprocess.run(
        [sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])", str(library_file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
    )
    if tried.returncode == 0:
        return None
    return (tried.stderr.strip().splitlines() or ["it ended with status %d" % tried.returncode])[-1]


def clear(home):
    """Takes an older or half-made libtorch away; the record first, so that a broken-off run leaves none."""
    with contextlib.suppress(FileNotFoundError):
        (home / "complete.json").unlink()
    for item in home.iterdir():
        if item.name in ("partial", "lock"):
            continue
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item)
        else:
            item.unlink()


def record(home, part, what):
    fresh = home / "complete.json.new"
    fresh.write_text(json.dumps({"version": VERSION, "part": part, "what": what}) + "\n")
    os.replace(str(fresh), str(home / "complete.json"))


def emptied(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def shown(path):
    try:
        return "%s/" % path.relative_to(wheels.ROOT)
    except ValueError:
        return "%s/" % path


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit("libtorch: %s" % failure)
    except KeyboardInterrupt:
        sys.exit("\nlibtorch: interrupted; run this again to go on")
