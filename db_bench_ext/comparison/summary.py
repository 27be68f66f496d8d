"""Cases from runs, medians, and the shapes that results.schema.json asks for."""

import csv
import io
import os
import pathlib
import platform
import statistics

from comparison import percentiles, processes

LATENCIES = ("mean", "p50", "p75", "p99", "p99_9", "p99_99", "max")


def median(runs: list[dict], valid_only: bool = True) -> dict | None:
    """Medians over the runs, figure by figure; None when there is none."""
    valid = [run for run in runs if run["valid"] or not valid_only]
    if not valid:
        return None

    def per_op(seconds_of):
        return statistics.median(1e6 * seconds_of(run["cpu_seconds"]) / run["operations"] for run in valid)

    return {
        "ops_per_second": statistics.median(run["ops_per_second"] for run in valid),
        "micros_per_op": statistics.median(run["micros_per_op"] for run in valid),
        "latency_ns": median_latency(valid),
        "cpu_us_per_op": {
            "primary": per_op(lambda cpu: cpu["primary"]),
            "replicas": per_op(lambda cpu: sum(cpu["replicas"])),
            "rnic": per_op(lambda cpu: cpu["rnic"]),
        },
    }


def median_latency(runs: list[dict]) -> dict:
    """None where one of the runs has none."""
    values = {name: [run["latency_ns"][name] for run in runs] for name in LATENCIES}
    return {name: None if None in of_runs else statistics.median(of_runs) for name, of_runs in values.items()}


def add_runs(cases: list[dict], measured: list, configuration, options) -> None:
    """Adds one run's benchmarks to their cases, making those that are new."""
    load = configuration.load
    if configuration.noise and len([level for level in options.noise if level]) > 1:
        load = f"noise {configuration.noise}"
    for each in measured:
        datapath = configuration.datapath if configuration.datapath == each.datapath else f"{configuration.datapath} ({each.datapath})"
        name = f"{each.benchmark} · {datapath} · {load}"
        found = next((case for case in cases if case["name"] == name), None)
        if found is None:
            found = {
                "name": name, "benchmark": each.benchmark, "datapath": each.datapath, "provider": options.provider,
                "hosts_apart": options.hosts_apart and configuration.datapath != "none",
                "replicas": 0 if configuration.datapath == "none" else options.replicas, "tenants": options.tenants,
                "load": configuration.load, "noise_workers": configuration.noise or None, "command": each.command, "runs": [], "median": None,
            }
            cases.append(found)
        found["runs"].append(each.run)
        found["median"] = median(found["runs"])


def machine(rocksdb: str, hyperloop: str) -> dict:
    """What the figures were measured on."""
    information = pathlib.Path("/proc/cpuinfo").read_text()
    models = [line.split(":", 1)[1].strip() for line in information.splitlines() if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.machine(),
        "processors": len(processes.allowed()),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "os": platform.freedesktop_os_release()["PRETTY_NAME"],
        "rocksdb": rocksdb,
        "hyperloop": hyperloop,
        "virtual_machine": "hypervisor" in information,
    }


def as_csv(results: dict) -> str:
    """One line a run of a case or an alternative."""
    results = percentiles.supported(results)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "benchmark", "datapath", "replicas", "tenants", "load", "run", "valid", "operations", "seconds",
                     "ops_per_second", "micros_per_op", *(f"{name}_ns" for name in LATENCIES),
                     "cpu_primary_s", "cpu_replicas_s", "cpu_rnic_s", "cpu_noise_s", "reasons"])
    for case in results["cases"]:
        for number, run in enumerate(case["runs"], 1):
            cpu = run["cpu_seconds"]
            writer.writerow([case["name"], case["benchmark"], case["datapath"], case["replicas"], case["tenants"], case["load"], number,
                             run["valid"], run["operations"], run["seconds"], run["ops_per_second"], run["micros_per_op"],
                             *(run["latency_ns"][name] for name in LATENCIES), cpu["primary"], sum(cpu["replicas"]), cpu["rnic"],
                             cpu.get("noise"), "; ".join(run["reasons"])])
    for alternative in results["alternatives"]:
        for number, run in enumerate(alternative["runs"], 1):
            writer.writerow([alternative["name"], "", "", "", "", "", number, run["valid"], run["operations"], run["seconds"],
                             run["ops_per_second"], 1e6 / run["ops_per_second"], *(run["latency_ns"][name] for name in LATENCIES),
                             "", "", "", "", "; ".join(run["reasons"])])
    return text.getvalue()
