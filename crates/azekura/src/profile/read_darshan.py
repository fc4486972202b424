"""Reads a Darshan log and prints what was done to which file, in the form of usage.rs."""

import json
import sys

try:
    import darshan
except ImportError:
    sys.exit(3)

# Sizes of requests that the POSIX module keeps of each file; STDIO keeps none.
SIZES = 4


def commonest(row):
    pairs = [
        (int(row.get(f"POSIX_ACCESS{place}_ACCESS", 0)), int(row.get(f"POSIX_ACCESS{place}_COUNT", 0)))
        for place in range(1, SIZES + 1)
    ]
    return sorted((pair for pair in pairs if pair[1] > 0), key=lambda pair: -pair[1])


def moved(row, times, module, way):
    """`way` is READ or WRITE. Sizes are kept for both ways together, so they are those of either."""
    requests = max(int(row.get(f"{module}_{way}S", 0)), 0)
    total = max(int(row.get(f"{module}_BYTES_{'READ' if way == 'READ' else 'WRITTEN'}", 0)), 0)
    sequential = max(int(row.get(f"{module}_SEQ_{way}S", requests)), 0)
    mean = total // requests if requests else 0
    sizes = commonest(row) if module == "POSIX" else []
    if requests and not sizes:
        sizes = [(mean, requests)]
    return {
        "bytes": total,
        "requests": requests,
        "sequential": min(sequential, requests),
        "seconds": max(float(times.get(f"{module}_F_{way}_TIME", 0.0)), 0.0),
        "sizes": sizes if requests else [],
        "derived_bytes": 0,
        "records": requests,
        "record_bytes": total,
        "record_sizes": sizes if requests else [],
    }


def file_usage(path, row, times, module):
    return {
        "path": path,
        "opens": max(int(row.get(f"{module}_OPENS", 0)), 0),
        "creates": 0,
        "size_before": 0,
        "end": max(int(row.get(f"{module}_MAX_BYTE_WRITTEN", -1)) + 1, 0),
        "stream_buffer": 0,
        "seeks": max(int(row.get(f"{module}_SEEKS", 0)), 0),
        "mapped_bytes": 0,
        "read": moved(row, times, module, "READ"),
        "written": moved(row, times, module, "WRITE"),
    }


def main():
    report = darshan.DarshanReport(sys.argv[1], read_all=False)
    job = report.metadata["job"]
    wall = max(float(job.get("run_time", 0.0)), 0.0)
    ranks = {}
    for module in ("POSIX", "STDIO"):
        if module not in report.modules:
            continue
        report.mod_read_all_records(module)
        frames = report.records[module].to_df()
        # By column: a row of its own would turn the ids into floating-point numbers.
        counters = frames["counters"].to_dict("records")
        for row, times in zip(counters, frames["fcounters"].to_dict("records"), strict=True):
            path = str(report.name_records.get(row["id"], row["id"]))
            if not path.startswith("/"):
                continue
            # A rank of -1 stands for all of them together.
            process = ranks.setdefault(int(row["rank"]), {"files": [], "seconds": 0.0, "looks": 0})
            process["files"].append(file_usage(path, row, times, module))
            process["seconds"] += max(float(times.get(f"{module}_F_META_TIME", 0.0)), 0.0)
            process["looks"] += max(int(row.get(f"{module}_STATS", 0)), 0)
    processes = []
    for rank, found in sorted(ranks.items()):
        busy = sum(one["read"]["seconds"] + one["written"]["seconds"] for one in found["files"])
        count = int(job.get("nprocs", 1)) if rank < 0 else 1
        spent = min((busy + found["seconds"]) / max(count, 1), wall)
        processes.append(
            {
                "pid": max(rank, 0),
                "parent": 0,
                "name": f"rank {rank}" if rank >= 0 else "all ranks",
                "end": "exit",
                "start_s": 0.0,
                "wall_s": wall,
                "io_s": spent,
                "compute_s": (wall - spent) * max(count, 1),
                "names": {
                    "opens": sum(one["opens"] for one in found["files"]),
                    "failed_opens": 0,
                    "creates": 0,
                    "looks": found["looks"],
                    "makes": 0,
                    "removes": 0,
                    "changes": 0,
                    "renames": 0,
                    "lists": 0,
                    "seconds": found["seconds"],
                },
                "records": [0, 0],
                "switches": [0, 0],
                "files": found["files"],
            }
        )
    usage = {
        "command": str(report.metadata.get("exe", "")) or "darshan",
        "recorder": "Darshan",
        "at_a_time": max(int(job.get("nprocs", 1)), 1),
        "processes": processes,
        "unseen_programs": 0,
        "unseen_environments": 0,
        "lost": 0,
    }
    json.dump(usage, sys.stdout)


try:
    main()
except Exception as error:  # whatever the package says of a file is for whoever named it
    sys.exit(f"{type(error).__name__}: {error}")
