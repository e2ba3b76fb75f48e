"""Our histograms have the same points as OpenTelemetry's own for the same values, and are bounded."""

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from callboard.telemetry import histograms, names
from callboard.telemetry.histograms import Histograms, MetricsSender
from callboard.telemetry.recorder import instrument

VALUES = st.lists(
    st.tuples(
        st.sampled_from([names.OPERATION_DURATION, names.TOKEN_USAGE]),
        st.floats(0, 1e6) | st.sampled_from(names.OPERATION_DURATION.bounds),
        st.sampled_from([{}, {"a": "x"}, {"a": "y", "b": 1}]),
    ),
    min_size=1,
    max_size=20,
)


def points(metrics):
    """What of the points is compared, by metric and attributes."""
    return {
        (metric.name, metric.unit, metric.description, str(sorted(point.attributes.items()))): (
            point.count, round(point.sum, 6), tuple(point.bucket_counts), tuple(point.explicit_bounds), point.min, point.max
        )
        for metric in metrics
        for point in metric.data.data_points
    }  # fmt: skip


@given(VALUES)
def test_the_points_are_those_of_the_sdk(values):
    ours, reader = Histograms(), InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    theirs = instrument(provider)
    for metric, value, attributes in values:
        ours.add(metric, value, attributes)
        theirs(metric, value, attributes)
    (resource,) = reader.get_metrics_data().resource_metrics
    assert points(ours.collect()) == points(resource.scope_metrics[0].metrics)
    provider.shutdown()


def test_series_are_bounded(monkeypatch):
    monkeypatch.setattr(histograms, "MAX_SERIES", 3)
    ours = Histograms()
    for number in range(100):
        ours.add(names.TOOL_DURATION, 1.0, {names.TOOL_NAME: f"t{number}"})
    (metric,) = ours.collect()
    counts = {str(dict(point.attributes)): point.count for point in metric.data.data_points}
    assert len(counts) == 4
    assert counts["{'otel.metric.overflow': True}"] == 97


class Exporter:
    def __init__(self):
        self.batches = []
        self.is_shut = False

    def export(self, batch):
        self.batches.append(batch)
        return MetricExportResult.SUCCESS

    def shutdown(self):
        self.is_shut = True


def test_what_is_left_is_sent_at_the_end_and_once():
    ours, exporter = Histograms(), Exporter()
    sender = MetricsSender(ours, exporter, Resource({}), InstrumentationScope("x"))
    ours.add(names.TOOL_DURATION, 1.0, {})
    sender.close()
    sender.close()
    assert len(exporter.batches) == 1
    assert exporter.is_shut
