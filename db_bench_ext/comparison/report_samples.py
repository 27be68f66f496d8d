"""Results for the report's tests: few numbers, each easy to find again on the page."""


def latency(p50: float) -> dict:
    return {"mean": 1.1 * p50, "p50": p50, "p75": 1.2 * p50, "p99": 2 * p50, "p99_9": 4 * p50, "p99_99": 10 * p50, "max": 20 * p50}


def histogram(p50: int) -> list[list[int]]:
    return [[p50 // 2, p50, 600], [p50, 2 * p50, 390], [2 * p50, 4 * p50, 9], [4 * p50, 20 * p50, 1]]


def run(p50: int, replica_seconds: float = 0.0, reasons: tuple[str, ...] = ()) -> dict:
    return {"valid": not reasons, "reasons": list(reasons), "operations": 1000, "seconds": 1.1e-6 * p50,
            "ops_per_second": 1e9 / (1.1 * p50), "micros_per_op": 1.1e-3 * p50, "latency_ns": latency(p50), "histogram": histogram(p50),
            "cpu_seconds": {"primary": 0.005, "replicas": [replica_seconds] * 3, "rnic": 0.004, "noise": None},
            "cpu_share": {"0": {"primary": 0.97}, "1": {"replicas": 0.5, "rnic": 0.25, "noise": 0.2}}, "rnic_counters": {"wqes_executed": 12345}}


def ycsb_run(p50: int, kind: str, reasons: tuple[str, ...] = ()) -> dict:
    """Half reads, half writes of `kind`, or reads alone."""
    types = [{"type": each, "operations": 500, "latency_ns": latency(value), "histogram": histogram(value)}
             for each, value in {"read": 1500, kind: p50}.items()]
    return run(p50, reasons=reasons) | {"types": types}


def case(datapath: str, runs: list[dict], load: str = "idle", benchmark: str = "fillrandom", **fields) -> dict:
    valid = sorted((each for each in runs if each["valid"]), key=lambda each: each["seconds"])
    median = None
    if valid:
        middle = valid[len(valid) // 2]
        median = {"ops_per_second": middle["ops_per_second"], "micros_per_op": middle["micros_per_op"], "latency_ns": middle["latency_ns"],
                  "cpu_us_per_op": {"primary": 5.0, "replicas": 1e3 * sum(middle["cpu_seconds"]["replicas"]), "rnic": 4.0}}
    return {"name": f"{benchmark} · {datapath} · {load}", "benchmark": benchmark, "datapath": datapath, "provider": "softrnic",
            "replicas": 0 if datapath == "none" else 3, "tenants": 1, "load": load, "command": f"db_bench --benchmarks={benchmark}",
            "runs": runs, "median": median} | fields


def primitive(datapath: str, p50: int, size: int = 1024, window: int = 1, **fields) -> dict:
    return {"datapath": datapath, "primitive": "gwrite", "flush": True, "size": size, "window": window, "replicas": 3, "loop": "closed",
            "rate": 0, "number": 1000, "seconds": 1e-6 * p50, "ops_per_second": 1e9 / p50 * window, "mean_ns": p50, "p50_ns": p50,
            "p99_ns": 2 * p50, "p999_ns": 4 * p50, "max_ns": 20 * p50, "histogram": histogram(p50), "load": "idle"} | fields


def results() -> dict:
    """Every section, one run that is not valid among valid ones, one case without any valid run, and a name that is not HTML."""
    unfair = "the RNIC kept a replica thread from its fair share"
    return {
        "version": 1, "started": "2026-02-03T04:05:00+00:00", "command": "db_bench_ext --noise=0,10 --primitives --alternatives",
        "machine": {"cpu": "Processor <4 & 5>", "processors": 2, "memory_bytes": 8 << 30, "kernel": "6.1", "os": "Debian", "rocksdb": "7.8.3",
                    "hyperloop": "0.1.0"},
        "cases": [
            case("none", [run(4000), run(4200)]), case("offload", [run(6000), run(6100), run(6200)]),
            case("cpu-polling", [run(9000, 0.008), run(9100, 0.008), run(55000, 0.001, (unfair,))]),
            case("offload", [run(7000)], "noise", noise_workers=10),
            case("cpu-event", [run(800000, 0.02, (unfair,))], "noise", noise_workers=10),
            *(case(datapath, [ycsb_run(p50, kind), ycsb_run(p50 + 100, kind)], benchmark=f"ycsb-{letter}")
              for letter, kind in (("f", "read-modify-write"), ("c", "read"), ("a", "update"))
              for datapath, p50 in (("none", 3300), ("offload", 7300)))],
        "primitives": [
            *(primitive(datapath, round(speed * (1 + size / 4096)), size=size)
              for datapath, speed in (("offload", 1000), ("cpu-polling", 2500)) for size in (64, 1024, 65536)),
            *(primitive("offload", 1250, window=window) for window in (8, 64)),
            primitive("fanout", 1234, valid=False, reasons=["the processor was taken"]),
            *(primitive("none", 300 + size, size=size, primitive=verb, flush=False, replicas=0, inline=False, signal_every=1, requests=1,
                        chained=False, wait="poll", loop=None)
              for verb in ("verb-write", "verb-send") for size in (64, 4096))],
        "alternatives": [
            {"name": "Redis, WAIT 3", "guarantee": "processed by 3 replicas", "durability": "memory", "settings": "WAIT 3 0", "operations": 10,
             "value_size": 100, "datapath": None,
             "ops_per_second": 18000.0, "latency_ns": latency(57000), "runs": [], "command": "redis-server"},
            {"name": "etcd", "guarantee": "written by a majority", "durability": "disk", "settings": "not started", "operations": 0,
             "ops_per_second": None, "latency_ns": None, "runs": [], "command": "etcd"}],
    }
