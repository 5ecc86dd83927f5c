"""What the service counts. Plain numbers, so that counting costs a step next to nothing; `/metrics` formats them."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

# Seconds: from a step that only computes to one that waits for a sandbox.
_BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)


class EnvironmentMetrics:
    """Of one environment."""

    def __init__(self) -> None:
        self.resets = 0
        self.finished: Counter[str] = Counter()
        """Episodes that came to an end, by stop reason."""
        self.replays = 0
        """Live objects rebuilt from their record."""
        self.divergences = 0
        """Replays whose reward was not the recorded one."""
        self.live = 0
        """Live objects in this process."""
        self.step_s = 0.0
        self._buckets = [0] * (len(_BUCKETS) + 1)

    @property
    def steps(self) -> int:
        return sum(self._buckets)

    def step(self, seconds: float) -> None:
        self.step_s += seconds
        self._buckets[bisect_left(_BUCKETS, seconds)] += 1

    def step_buckets(self) -> list[tuple[str, float]]:
        total, cumulative = 0, []
        for limit, count in zip((*map(str, _BUCKETS), "+Inf"), self._buckets, strict=True):
            total += count
            cumulative.append((limit, float(total)))
        return cumulative


class Metrics:
    """Of the service: a collector for a Prometheus registry."""

    def __init__(self, environments: Iterable[str]) -> None:
        self.environments = {name: EnvironmentMetrics() for name in environments}
        self.errors: Counter[str] = Counter()
        """Errors sent, by code."""
        self.connections = 0
        """Open WebSockets."""

    def collect(self) -> Iterable[Metric]:
        steps = HistogramMetricFamily("rolloutgym_step_seconds", "Time a step took", labels=["environment"])
        resets = CounterMetricFamily("rolloutgym_resets", "Episodes begun", labels=["environment"])
        finished = CounterMetricFamily("rolloutgym_finished", "Episodes ended", labels=["environment", "stop_reason"])
        replays = CounterMetricFamily("rolloutgym_replays", "Episodes rebuilt by replay", labels=["environment"])
        divergences = CounterMetricFamily(
            "rolloutgym_replay_divergences",
            "Replayed steps whose reward was not the recorded one",
            labels=["environment"],
        )
        live = GaugeMetricFamily("rolloutgym_live_episodes", "Live episodes in this process", labels=["environment"])
        for name, one in self.environments.items():
            steps.add_metric([name], one.step_buckets(), one.step_s)
            resets.add_metric([name], one.resets)
            replays.add_metric([name], one.replays)
            divergences.add_metric([name], one.divergences)
            live.add_metric([name], one.live)
            for reason, count in one.finished.items():
                finished.add_metric([name, reason], count)
        errors = CounterMetricFamily("rolloutgym_errors", "Errors sent", labels=["code"])
        for code, count in self.errors.items():
            errors.add_metric([code], count)
        connections = GaugeMetricFamily("rolloutgym_websockets", "Open WebSocket connections", value=self.connections)
        return (steps, resets, finished, replays, divergences, live, errors, connections)
