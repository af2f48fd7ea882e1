"""cudarc's own unit tests and numbered examples, from the crate as published."""

import json
import math
import pathlib
import re
import shutil
import subprocess

VERSION = "0.19.10"
FEATURES = "std,driver,nvrtc,dynamic-loading,cuda-12090"

# Tests that are not required, each with its reason. They run all the same.
EXCLUDED = {
    "driver::safe::core::tests::test_pinned_copy_is_faster": (
        "times pinned against pageable copies: host memory is host memory here"
    ),
    "driver::safe::core::tests::test_default_pinned_host_reads_are_faster_than_write_combined": (
        "times reads of write-combined memory, which is ordinary memory here"
    ),
    "driver::safe::launch::tests::test_par_launch": (
        "wants two streams to be faster than one: a device has one thread here"
    ),
}
REQUIRED = 54

# Under a driver whose every launch fails these have to fail: if they passed,
# their pass above would say nothing about kernels.
MUST_NOTICE = (
    "driver::safe::launch::tests::test_launch_with_mut_and_ref_cudarc",
    "driver::safe::launch::tests::test_large_launches",
    "driver::safe::launch::tests::test_launch_with_views",
    "driver::safe::launch::tests::test_launch_with_32bit",
    "driver::safe::launch::tests::test_launch_with_floats",
    "driver::safe::launch::tests::test_launch_arrays",
)


def source(work):
    """A copy of the crate, so that building it leaves the registry alone."""
    copy = work / f"cudarc-{VERSION}"
    if not copy.exists():
        home = pathlib.Path.home() / ".cargo/registry/src"
        found = sorted(home.glob(f"*/cudarc-{VERSION}"))
        if not found:
            raise OSError(f"cudarc {VERSION} is not in {home}; run cargo fetch")
        shutil.copytree(found[0], copy)
        # It lies inside our workspace and is no member of it.
        with open(copy / "Cargo.toml", "a") as manifest:
            manifest.write("\n[workspace]\n")
    return copy


def cargo(work, *arguments):
    """Runs cargo in the copy; the executables it reports, by target name."""
    command = ["cargo", *arguments, "--no-default-features", "--features", FEATURES]
    command += ["--target-dir", str(work / "cudarc-target"), "--message-format", "json"]
    ran = subprocess.run(command, cwd=source(work), stdout=subprocess.PIPE, check=True)
    messages = (json.loads(line) for line in ran.stdout.splitlines())
    built = [message for message in messages if message.get("executable")]
    return {message["target"]["name"]: message["executable"] for message in built}


def run(program, arguments, environment, folder, seconds):
    """Exit code and output; a program that does not end counts as failed."""
    try:
        ran = subprocess.run(
            [program, *arguments],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            text=True,
            errors="replace",
        )
        return ran.returncode, ran.stdout
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode(errors="replace")


def outcomes(output):
    """Test name to `ok`, `FAILED` or `ignored`. Lines may be torn by prints of
    other threads, so the name and the verdict are looked for apart."""
    found = {}
    for name, verdict in re.findall(r"^test (\S+)(?: - .*?)? \.\.\. .*?(ok|FAILED|ignored)\b", output, re.M):
        found[name] = verdict
    failures = output.rpartition("\nfailures:\n")[2]
    for name in re.findall(r"^    (\S+::\S+)$", failures, re.M):
        found[name] = "FAILED"
    return found


def run_tests(work, environment):
    program = cargo(work, "test", "--lib", "--no-run")["cudarc"]
    folder = source(work)
    listed = run(program, ["--list"], environment, folder, 60)[1]
    names = re.findall(r"^(\S+): test$", listed, re.M)
    found = {}
    for name in names:
        # One process each: some lose the device, all are independent.
        arguments = [name, "--exact", "--include-ignored"]
        code, output = run(program, arguments, environment, folder, 300)
        found[name] = outcomes(output).get(name, "no result") if code is not None else "too slow"
        if found[name] == "ok" and code != 0:
            found[name] = f"ended with {code}"
    passed = [name for name in names if found[name] == "ok"]
    print(f"cudarc {VERSION} unit tests: {len(passed)} of {len(names)} pass")
    wrong = []
    if len(names) < 57 or len(passed) < REQUIRED:
        wrong.append(f"{len(passed)} of {len(names)} tests pass, expected {REQUIRED} of 57")
    for name in names:
        if found[name] != "ok":
            reason = EXCLUDED.get(name)
            print(f"  {found[name]}: {name}" + (f" (excluded: {reason})" if reason else ""))
            if not reason:
                wrong.append(f"{name}: {found[name]}")
    wrong += [f"{name} is excluded but does not exist" for name in EXCLUDED if name not in names]
    return wrong + control(program, environment, folder)


def control(program, environment, folder):
    """The same tests where no kernel can finish."""
    broken = {**environment, "KERNELGATE_BUDGET": "1"}
    wrong = []
    for name in MUST_NOTICE:
        code, _ = run(program, [name, "--exact"], broken, folder, 300)
        if code == 0:
            wrong.append(f"{name} passes although no kernel runs")
    print(f"  control: {len(MUST_NOTICE) - len(wrong)} of {len(MUST_NOTICE)} tests notice that "
          "no kernel runs")
    return wrong


def numbers(text):
    return [float(word) for word in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)]


def close(found, expected, tolerance):
    pairs = zip(found, expected)
    return len(found) == len(expected) and all(abs(a - b) <= tolerance for a, b in pairs)


def sines(output):
    found = re.search(r"^Found (\[.*\])", output, re.M)
    # sin.approx of the PTX: documented error 2^-20.9.
    return found and close(numbers(found[1]), [math.sin(x) for x in (1, 2, 3)], 2e-6)


def product(output):
    found = re.search(r"^Found (\[.*?\])", output, re.M)
    return found and close(numbers(found[1]), [7, 10, 15, 22], 0)


def polynomial(output):
    found = re.findall(r"f\((\S+)\) = (\S+) ", output)
    expected = [1 + 2 * x + 3 * x**2 + 4 * x**3 for x in range(6)]
    return close([float(value) for _, value in found], expected, 0)


def attributes(output):
    return "Max threads per block:    1024" in output and "PTX version:              5.2" in output


def quiet(_output):
    """The example compares by itself and panics where it finds a difference."""
    return True


EXAMPLES = {
    "01-allocate": quiet,
    "02-copy": quiet,
    "03-launch-kernel": sines,
    "04-streams": sines,
    "05-device-repr": quiet,
    "06-threading": lambda output: output.count("Hello from the cuda kernel in thread") >= 10,
    "09-constant-memory": polynomial,
    "10-function-attributes": attributes,
    "12-context-config": lambda output: "Updated stack size: 2048 bytes" in output,
    "13-copy-multi-gpu": quiet,
    "matmul-kernel": product,
    "nvrtc-compile": quiet,
}


def run_examples(work, environment):
    wanted = [word for name in EXAMPLES for word in ("--example", name)]
    programs = cargo(work, "build", *wanted)
    wrong = []
    for name, agrees in EXAMPLES.items():
        code, output = run(programs[name], [], environment, source(work), 120)
        if code != 0 or not agrees(output):
            wrong.append(f"example {name}: exit {code}, output {output[-300:]!r}")
    print(f"cudarc {VERSION} examples: {len(EXAMPLES) - len(wrong)} of {len(EXAMPLES)} agree")
    return wrong
