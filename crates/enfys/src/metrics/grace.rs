//! The grace period after a restart.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use server::GraceSnapshot;

/// Clients named at most, so that a scrape stays short whatever the number of clients.
pub(super) const NAMES_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    client: String,
}

/// Encodes whether a grace period runs, for how long at most, and which clients it waits for.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    grace: Option<&GraceSnapshot>,
) -> Result<(), Error> {
    let waiting_for = grace.map(|grace| grace.waiting_for.count).unwrap_or_default();
    let seconds = grace.map(|grace| grace.left.as_secs_f64()).unwrap_or_default();
    let help = "Whether the grace period after a restart runs (1), in which new NFSv4 opens and locks wait";
    gauge(encoder, "grace_active", help, f64::from(u8::from(grace.is_some())))?;
    let help = "Longest time until the grace period ends; 0 where none runs";
    gauge(encoder, "grace_left_seconds", help, seconds)?;
    let help = "NFSv4 clients that may still reclaim what they held before the restart";
    gauge(encoder, "grace_clients_waited_for", help, waiting_for as f64)?;
    let Some(grace) = grace else { return Ok(()) };
    let help = "An NFSv4 client that may still reclaim, by its name; 16 of them at most";
    let mut family = encoder.encode_descriptor("grace_client_waited_for", help, None, MetricType::Gauge)?;
    for name in &grace.waiting_for.names {
        // As `enfys status` writes it; the encoder escapes what would end the label.
        let labels = Labels { client: name.escape_ascii().to_string() };
        ConstGauge::new(1i64).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> Result<(), Error> {
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}
