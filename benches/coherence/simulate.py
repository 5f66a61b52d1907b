#!/usr/bin/env python3
"""Runs the simulator; see README.md.

simulate.py run CACHES WORKS THREADS [key=value of the plugin ...] [--keys N] [--out FILE]
simulate.py where FILE [CACHE [WORK [THREADS]]]     names the lines and places that move most
simulate.py check BASELINE                          the toys, then the main rows, compared
simulate.py save BASELINE                           makes the baseline
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.environ["COHERENCE_ROOT"]
QEMU = os.environ.get("QEMU", "qemu-x86_64")
GUEST = os.environ.get("COHERENCE_GUEST", ROOT + "/guest")
PLUGIN = ROOT + "/coherence.so"
TOLERANCE = float(os.environ.get("TOLERANCE", "15")) / 100

# Each toy moves so many lines for an operation, by its nature; see `src/caches.rs`.
TOYS = {"toy-counter": (1.0, 1.0), "toy-sharded": (0.0, 0.0), "toy-table": (0.0, 0.0),
        "toy-mutex": (1.0, 4.0), "toy-flag": (0.2, 0.7)}
# The main rows: cache, workload, number of keys, and settings of the plugin. A cache begins to
# reuse slots and to free what left only after some writes, and its lists grow until then. So these
# writes come first. Passes come in batches: a short run would count fewer evictions than inserts.
STEADY = ["warmops=200000", "minops=60000"]
ROWS = {
    "hits": ("wheelhouse", "zipf", 100000, ["warm=1000000"]),
    "hits-idle-5s": ("wheelhouse", "idle5", 100000, []),
    "get-insert": ("wheelhouse", "evict", 100000, STEADY),
    "insert": ("wheelhouse", "insert", 100000, STEADY),
    "replace": ("wheelhouse", "toy", 100000, STEADY),
    "mixed-75-25": ("wheelhouse", "replace", 1000, STEADY),
}
THREADS = 64


def simulate(cache, work, threads, keys, settings):
    with tempfile.NamedTemporaryFile(dir=ROOT, suffix=".json") as report:
        plugin = ",".join([PLUGIN, "out=" + report.name] + settings)
        command = [QEMU, "-cpu", "max", "-plugin", plugin, GUEST, cache, work, str(threads), str(keys)]
        limit = float(os.environ.get("EACH", "300"))
        try:
            # On one processor: only one thread runs at a time.
            pin = lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            ended = subprocess.run(command, preexec_fn=pin, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit)
            error = ended.stderr[-300:]
        except subprocess.TimeoutExpired:
            error = f"not ended within {limit} s"
        lines = open(report.name).read().splitlines()
    run = json.loads(lines[-1]) if lines else {}
    run.update(cache=cache, work=work, n=threads, keys=keys, error=error)
    return run


def moved(run):
    parts = [run["workers"], run["others"]]
    return sum(part[kind] for part in parts for kind in ("rmiss", "smiss", "wxfer")) / run["ops"]


def describe(run):
    name = f"{run['cache']:12} {run['work']:9} {run['keys']:6} keys, {run['n']:2} threads:"
    if not run.get("ops"):
        return f"{name} no answer: {run['error']}"
    workers, ops = run["workers"], run["ops"]
    hottest = run["hot"][0] if run["hot"] else {"rm": 0, "wx": 0}
    return (f"{name} {moved(run):7.3f} lines moved (read {workers['rmiss'] / ops:.3f}, shared "
            f"{workers['smiss'] / ops:.3f}, written {workers['wxfer'] / ops:.3f}); hottest line "
            f"{(hottest['rm'] + hottest['wx']) / ops:.4f}; {workers['instr'] / ops:.0f} instructions; "
            f"{run['mops']:.2f} Mops")


def run(caches, works, threads, *rest):
    keys, out, settings, rest = 100000, None, [], list(rest)
    while rest:
        word = rest.pop(0)
        if word == "--keys":
            keys = int(rest.pop(0))
        elif word == "--out":
            out = rest.pop(0)
        else:
            settings.append(word)
    for work in works.split(","):
        for cache in caches.split(","):
            for number in threads.split(","):
                result = simulate(cache, work, int(number), keys, settings)
                print(describe(result), flush=True)
                if out:
                    with open(out, "a") as file:
                        file.write(json.dumps(result) + "\n")


def names(addresses):
    """File and line of each address; calls that were inlined, innermost first."""
    command = ["addr2line", "-a", "-i", "-f", "-C", "-e", GUEST] + ["0x" + at for at in sorted(set(addresses))]
    answer = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    frames, at = {}, None
    for line in answer:
        if line.startswith("0x"):
            at = f"{int(line, 16):x}"
            frames[at] = []
        else:
            frames[at].append(line)
    found = {}
    for at, lines in frames.items():
        places = [place.split(" (")[0] for place in lines[1::2]]
        own = [place for place in places if not any(part in place for part in ("/rustc/", "library/"))]
        short = [place.split("/registry/src/")[-1].split("/src/")[-1] for place in own or lines[:1]]
        found[at] = " < ".join(short[:4])
    return found


def where(file, *selected):
    for line in open(file):
        result = json.loads(line)
        wanted = zip(selected, (result["cache"], result["work"], str(result["n"])))
        if not result.get("ops") or any(want != is_ for want, is_ in wanted):
            continue
        ops, hot, places = result["ops"], result["hot"][:6], result["pcs"][:24]
        named = names([at[0] for line in hot for at in line["pcs"]] + [at[0] for at in places])
        print(describe(result))
        for line in hot:
            print(f"  line {line['line']}: {(line['rm'] + line['wx']) / ops:.4f} transfers an operation")
            for at, read, shared, written, *_ in line["pcs"][:6]:
                print(f"      {read / ops:.4f} {shared / ops:.4f} {written / ops:.4f}  {named.get(at)}")
        print("  by place: read from an owner, read when shared, written; ns of waiting")
        for at, read, shared, written, stall in places:
            print(f"      {read / ops:.4f} {shared / ops:.4f} {written / ops:.4f} {stall / ops:7.2f}  {named.get(at)}")


def check_toys():
    for toy, (least, most) in TOYS.items():
        result = simulate(toy, "uniform", THREADS, 100000, [])
        print(describe(result), flush=True)
        if not least - 0.05 <= moved(result) <= most + 0.05:
            sys.exit(f"{toy} moves {least} to {most} lines: the simulator does not work here")


def main_rows():
    for row, (cache, work, keys, settings) in ROWS.items():
        result = simulate(cache, work, THREADS, keys, settings)
        print(f"{row:16} {describe(result)}", flush=True)
        if not result.get("ops"):
            sys.exit(f"{row}: {result['error']}")
        yield row, moved(result), result["mops"]


def save(baseline):
    check_toys()
    with open(baseline, "w") as file:
        file.write("# Cache lines that move between cores for each operation, and millions of operations a\n"
                   "# second, with 64 simulated threads. `ci/scale.sh --save` makes this file.\n")
        for row, lines, mops in main_rows():
            file.write(f"{row} {lines:.3f} {mops:.1f}\n")


def check(baseline):
    check_toys()
    rows = [line.split() for line in open(baseline) if not line.startswith("#")]
    before = {row: float(lines) for row, lines, _ in rows}
    if set(before) != set(ROWS):
        sys.exit(f"{baseline} names other rows: ci/scale.sh --save makes it anew")
    # A row that moves next to nothing may move a little.
    worse = [f"{row}: {lines:.3f} lines moved, {before[row]:.3f} before"
             for row, lines, _ in main_rows() if lines > before[row] * (1 + TOLERANCE) + 0.02]
    if worse:
        sys.exit("\n".join(worse))
    print(f"no row moves over {TOLERANCE:.0%} more lines than the baseline says")


{"run": run, "where": where, "check": check, "save": save}[sys.argv[1]](*sys.argv[2:])
