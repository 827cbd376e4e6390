//! Writes single metrics and histograms.

use std::fmt::Error;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::latency::Histogram;
use crate::figures::{Kind, Metric};

/// Begins a family of metrics; `name` of a counter ends in `_total`.
pub(super) fn begin<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    name: &'e str,
    help: &'e str,
    kind: MetricType,
) -> Result<MetricEncoder<'e>, Error> {
    // The library appends `_total` to the samples.
    let name = name.strip_suffix("_total").unwrap_or(name);
    encoder.encode_descriptor(name, help, None, kind)
}

/// Writes a metric without labels.
pub(super) fn metric(encoder: &mut DescriptorEncoder<'_>, metric: Metric) -> Result<(), Error> {
    let Metric { name, kind, help, value } = metric;
    match kind {
        Kind::Counter => counter(encoder, name, help, value),
        Kind::Gauge => gauge(encoder, name, help, value),
    }
}

pub(super) fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), Error> {
    ConstCounter::new(value).encode(begin(encoder, name, help, MetricType::Counter)?)
}

pub(super) fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> Result<(), Error> {
    let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    gauge.encode(begin(encoder, name, help, MetricType::Gauge)?)
}

pub(super) fn gauge_seconds(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: f64,
) -> Result<(), Error> {
    ConstGauge::new(value).encode(begin(encoder, name, help, MetricType::Gauge)?)
}

pub(super) fn counter_seconds(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: f64,
) -> Result<(), Error> {
    ConstCounter::new(value).encode(begin(encoder, name, help, MetricType::Counter)?)
}

/// Writes one histogram of a family.
pub(super) fn histogram(
    family: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    histogram: &Histogram,
) -> Result<(), Error> {
    let snapshot = histogram.snapshot();
    let mut encoder = family.encode_family(labels)?;
    encoder.encode_histogram::<NoLabelSet>(snapshot.total_s, snapshot.count, &snapshot.buckets, None)
}
