"""What the kernel says that a process has used. Linux's /proc and clocks; nothing for a process that is gone."""

import time
from pathlib import Path


def cpu_s(pid: int) -> float:
    """CPU time of all its threads, seconds."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)
    except OSError:
        return 0.0


def threads(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[17])


def run_delay_s(pid: int) -> float:
    """Seconds that its main thread has been ready to run and had no CPU; 0 where the kernel does not tell."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
