#!/usr/bin/env python3
"""Runs outside clients, unmodified, on the CPU driver and compares their results.

    cargo build --release -p cpu-driver
    python3 cpu-driver/tests/clients/run.py [--driver FILE] [--work FOLDER] [CLIENT …]

Clients: `tests` (cudarc's own unit tests), `examples` (its numbered examples),
`core` (cuda.core from Python). All of them by default. Packages come from
crates.io and PyPI into FOLDER (default target/clients).

Exit code: 0 every comparison held; 1 one did not; 2 wrong usage; 3 a client
could not be built or started.
"""

import argparse
import ctypes
import os
import pathlib
import re
import subprocess
import sys

import cudarc_client

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]


class CouldNotRun(Exception):
    """A client could not be built or started; says what to do."""


def library_folder(driver, work):
    """A folder that serves the driver under both names that clients open."""
    if not driver.exists():
        raise CouldNotRun(f"{driver} is not there; cargo build --release -p cpu-driver")
    folder = work / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("libcuda.so", "libcuda.so.1"):
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(driver.resolve())
    return folder


def python_environment(work):
    """A virtual environment with what requirements.txt pins."""
    home = work / "venv"
    python = home / "bin" / "python"
    stamp = home / "installed"
    wanted = (HERE / "requirements.txt").read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        install = [python, "-m", "pip", "install", "-q", "-r", HERE / "requirements.txt"]
        subprocess.run(install, check=True)
        stamp.write_text(wanted)
    found = sorted(home.glob("lib/python*/site-packages/nvidia/cuda_nvrtc/lib"))
    if not found:
        raise CouldNotRun(f"no NVRTC under {home}; delete the folder and run again")
    plain = found[0] / "libnvrtc.so"
    if not plain.exists():
        plain.symlink_to("libnvrtc.so.12")
    return python, found[0]


def missing_names(driver):
    """Public names that the library does not export."""
    table = (ROOT / "cpu-driver/src/api/names.rs").read_text()
    names = re.findall(r"\b(cu[A-Z]\w+) \d+", table)
    library = ctypes.CDLL(str(driver.resolve()))
    return [name for name in names if not hasattr(library, name)], len(names)


def main():
    names = ("tests", "examples", "core")
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=", ".join(names))
    parser.add_argument("--driver", type=pathlib.Path, default=ROOT / "target/release/libcuda.so")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target/clients")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.clients if name not in names]
    if unknown:
        parser.error(f"no client {unknown[0]}; there are {', '.join(names)}")
    wanted = chosen.clients or names
    work = chosen.work.resolve()
    try:
        libraries = library_folder(chosen.driver, work)
        python, nvrtc = python_environment(work)
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": f"{libraries}:{nvrtc}",
            # Two devices, so that multi-device programs run.
            "KERNELGATE_DEVICES": "2",
        }
        missing, count = missing_names(chosen.driver)
        print(f"public names: {count - len(missing)} of {count} exported")
        wrong = [f"{name} is not exported" for name in missing]
        if "tests" in wanted:
            wrong += cudarc_client.run_tests(work, environment)
        if "examples" in wanted:
            wrong += cudarc_client.run_examples(work, environment)
        if "core" in wanted:
            ran = subprocess.run([python, HERE / "core_client.py"], env=environment)
            if ran.returncode != 0:
                wrong.append(f"cuda.core client ended with {ran.returncode}")
    except (CouldNotRun, subprocess.CalledProcessError, OSError) as error:
        print(f"could not run: {error}", file=sys.stderr)
        return 3
    for line in wrong:
        print(f"WRONG: {line}")
    print("clients:", "all comparisons hold" if not wrong else f"{len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
