#!/usr/bin/env python3
"""Tests of fetch_libtorch.py: the real script and the real pip, on libraries of a few kilobytes, without a network."""

import http.server
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADER = "include/torch/csrc/api/include/torch/torch.h"


class FetchLibtorch(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="lathe-fetch-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.checkout = self.folder / "checkout"
        (self.checkout / "tools").mkdir(parents=True)
        for script in ("fetch_libtorch.py", "wheels.py"):
            shutil.copy(HERE / script, self.checkout / "tools" / script)
        self.home = self.checkout / ".libtorch"

    def fetch(self, **environment):
        ours = ("LIBTORCH", "LATHE_", "PIP_")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(ours) and not k.lower().endswith("_proxy")}
        return subprocess.run(
            [sys.executable, "-B", str(self.checkout / "tools/fetch_libtorch.py")],
            env=dict(clean, LATHE_LIBTORCH_CUDA=environment.pop("LATHE_LIBTORCH_CUDA", "0"), **environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )

    def libtorch(self, folder, version="2.13.0", told_by="build-version"):
        """A folder with the shape of a libtorch, whose libraries load."""
        (folder / HEADER).parent.mkdir(parents=True)
        (folder / HEADER).write_text("\n")
        (folder / "lib").mkdir()
        for name in ("libtorch_cpu.so", "libtorch.so", "libc10.so"):
            build_library(folder / "lib" / name)
        text = "__version__ = '%s+cu130'\n" if told_by == "version.py" else "%s+cpu\n"
        (folder / told_by).write_text(text % version)
        return folder

    def archive(self):
        made = self.folder / "libtorch.zip"
        zip_folder(self.libtorch(self.folder / "made/libtorch").parent, made)
        return made

    def test_a_libtorch_of_another_version_is_refused_with_both_versions(self):
        for told_by in ("build-version", "version.py"):
            other = self.libtorch(self.folder / told_by / "torch", "2.5.1", told_by)
            said = self.fetch(LIBTORCH=str(other))
            self.assertEqual(said.returncode, 1)
            self.assertIn("that is PyTorch 2.5.1; Lathe needs 2.13.0", said.stdout)
            self.assertIn(str(other), said.stdout)
            self.assertNotIn("Traceback", said.stdout)

    def test_a_libtorch_folder_that_lacks_a_part_is_refused_by_its_name(self):
        folder = self.libtorch(self.folder / "torch")
        (folder / "lib/libc10.so").unlink()
        self.assertIn("it has no lib/libc10.so", self.fetch(LIBTORCH=str(folder)).stdout)
        self.assertIn("there is no such folder", self.fetch(LIBTORCH=str(self.folder / "nowhere")).stdout)

    def test_a_good_libtorch_of_the_user_is_linked_to_so_that_later_builds_find_it(self):
        folder = self.libtorch(self.folder / "torch")
        self.assertEqual(self.fetch(LIBTORCH=str(folder)).returncode, 0)
        self.assertEqual((self.home / "torch").resolve(), folder.resolve())
        later = self.fetch(LATHE_LIBTORCH_SOURCE="/nowhere.zip")
        self.assertEqual(later.returncode, 0, later.stdout)
        shutil.rmtree(folder)
        self.assertEqual(self.fetch(LATHE_LIBTORCH_SOURCE="/nowhere.zip").returncode, 1, "the link leads nowhere now")

    def test_an_archive_is_unpacked_once(self):
        archive = self.archive()
        first = self.fetch(LATHE_LIBTORCH_SOURCE=str(archive))
        self.assertEqual(first.returncode, 0, first.stdout)
        self.assertTrue((self.home / "torch" / HEADER).exists())
        self.assertFalse((self.home / "partial").exists())
        archive.unlink()
        self.assertEqual(self.fetch(LATHE_LIBTORCH_SOURCE=str(archive)).returncode, 0)

    def test_what_a_killed_run_left_half_made_is_made_anew(self):
        (self.home / "torch/lib").mkdir(parents=True)
        (self.home / "torch/lib/libtorch_cpu.so").write_text("half")
        (self.home / "partial/unpacked/torch").mkdir(parents=True)
        said = self.fetch(LATHE_LIBTORCH_SOURCE=str(self.archive()))
        self.assertEqual(said.returncode, 0, said.stdout)
        self.assertTrue((self.home / "torch" / HEADER).exists())

    def test_a_library_that_does_not_load_is_not_taken(self):
        folder = self.libtorch(self.folder / "made/libtorch")
        (folder / "lib/libtorch_cpu.so").write_text("no library")
        zip_folder(folder.parent, self.folder / "libtorch.zip")
        said = self.fetch(LATHE_LIBTORCH_SOURCE=str(self.folder / "libtorch.zip"))
        self.assertEqual(said.returncode, 1)
        self.assertIn("does not load on this machine", said.stdout)
        self.assertFalse((self.home / "complete.json").exists())

    def test_a_download_that_broke_off_goes_on_where_it_stopped(self):
        content = self.archive().read_bytes()
        with serving(content, first_answer_bytes=len(content) // 2) as (url, ranges):
            broken = self.fetch(LATHE_LIBTORCH_SOURCE=url)
            self.assertEqual(broken.returncode, 1)
            self.assertIn("run this again to go on", broken.stdout)
            self.assertNotIn("Traceback", broken.stdout)
            said = self.fetch(LATHE_LIBTORCH_SOURCE=url)
            self.assertEqual(said.returncode, 0, said.stdout)
        self.assertEqual(ranges, [None, "bytes=%d-" % (len(content) // 2)])

    def test_a_damaged_download_is_thrown_away_and_had_anew(self):
        content = self.archive().read_bytes()
        with serving(content) as (url, ranges):
            (self.home / "partial").mkdir(parents=True)
            (self.home / "partial/libtorch.zip").write_bytes(content[: len(content) // 2])
            self.assertEqual(self.fetch(LATHE_LIBTORCH_SOURCE=url).returncode, 1)
            said = self.fetch(LATHE_LIBTORCH_SOURCE=url)
            self.assertEqual(said.returncode, 0, said.stdout)
        self.assertEqual(ranges, [None])

    def test_of_the_wheels_only_the_cpu_part_is_kept_and_links_without_cuda(self):
        said = self.fetch(**self.wheels())
        self.assertEqual(said.returncode, 0, said.stdout)
        kept = {str(p.relative_to(self.home)) for p in self.home.rglob("*.so*")}
        self.assertEqual(
            kept,
            {"torch/lib/libtorch_cpu.so", "torch/lib/libtorch.so", "torch/lib/libc10.so"}
            | {"nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/lib/libcupti.so.13"},
        )
        dynamic = subprocess.check_output(["readelf", "-d", str(self.home / "torch/lib/libtorch.so")], universal_newlines=True)
        self.assertIn("[libtorch.so]", dynamic)
        self.assertNotIn("libtorch_cuda", dynamic)

    def test_with_cuda_the_wheels_requirements_name_what_else_is_fetched(self):
        said = self.fetch(LATHE_LIBTORCH_CUDA="1", **self.wheels())
        self.assertEqual(said.returncode, 0, said.stdout)
        kept = {p.name for p in self.home.rglob("*.so*")}
        self.assertTrue({"libtorch_cuda.so", "libcublas.so.13", "libnccl.so.2"} <= kept, kept)
        self.assertNotIn("libtorch_python.so", kept)

    def wheels(self):
        """Wheels with the names, tags and requirements of PyPI's; gives the environment in which pip sees only these."""
        shelf = self.folder / "shelf"
        torch = self.libtorch(self.folder / "wheel/torch", told_by="version.py")
        build_library(torch / "lib/libtorch_cuda.so")
        build_library(torch / "lib/libtorch.so", "-Wl,--no-as-needed", str(torch / "lib/libtorch_cuda.so"))
        build_library(torch / "lib/libtorch_python.so")
        needs = ['cuda-toolkit[cublas]==13.0.3; platform_system == "Linux"', "nvidia-nccl-cu13==2.29.7", "sympy>=1.13.3"]
        make_wheel(shelf, "torch", "2.13.0", "cp311-cp311-manylinux_2_28", torch.parent, needs)
        for name, version, tag, library in (
            ("nvidia_cuda_runtime", "13.0.96", "manylinux2014", "libcudart.so.13"),
            ("nvidia_cuda_cupti", "13.0.85", "manylinux_2_25", "libcupti.so.13"),
            ("nvidia_cublas", "13.1.1.3", "manylinux_2_27", "libcublas.so.13"),
            ("nvidia_nccl_cu13", "2.29.7", "manylinux_2_18", "libnccl.so.2"),
        ):
            lib = self.folder / name / "nvidia/cu13/lib"
            lib.mkdir(parents=True)
            build_library(lib / library)
            build_library(lib / "libother.so")
            make_wheel(shelf, name, version, "py3-none-" + tag, self.folder / name)
        extra = ['nvidia-cublas==13.1.1.*; extra == "cublas"']
        make_wheel(shelf, "cuda_toolkit", "13.0.3", "py2.py3-none-any", self.folder / "nothing", extra, ["cublas"])
        return {"LATHE_LIBTORCH_SOURCE": "pypi", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shelf), "PIP_NO_CACHE_DIR": "1"}


def build_library(path, *arguments):
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname," + path.name, "-o", str(path), "-x", "c", os.devnull]
    subprocess.run(command + (["-x", "none"] + list(arguments) if arguments else []), check=True)


def zip_folder(folder, target):
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, str(file.relative_to(folder)))


def make_wheel(shelf, name, version, tag, content, requirements=(), extras=()):
    shelf.mkdir(exist_ok=True)
    if "linux" in tag:
        tag += "_" + platform.machine()
    lines = ["Metadata-Version: 2.1", "Name: " + name.replace("_", "-"), "Version: " + version]
    lines += ["Requires-Dist: " + r for r in requirements] + ["Provides-Extra: " + e for e in extras]
    info = content / ("%s-%s.dist-info" % (name, version))
    info.mkdir(parents=True)
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: %s\n" % tag)
    (info / "RECORD").write_text("")
    zip_folder(content, shelf / ("%s-%s-%s.whl" % (name, version, tag)))


class serving:
    """A server of one file that knows Range; its first answer may break off. Gives the URL and the ranges asked for."""

    def __init__(self, content, first_answer_bytes=None):
        ranges, first = [], [first_answer_bytes]

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked = self.headers.get("Range")
                ranges.append(asked)
                start = int(asked[len("bytes=") : -1]) if asked else 0
                self.send_response(206 if asked else 200)
                self.send_header("Content-Length", str(len(content) - start))
                self.end_headers()
                self.wfile.write(content[start:][: first.pop() if first else None])

            def log_message(self, *_):
                pass

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.ranges = ranges
        self.thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self):
        self.thread.start()
        return "http://127.0.0.1:%d/libtorch.zip" % self.server.server_port, self.ranges

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


if __name__ == "__main__":
    unittest.main()
