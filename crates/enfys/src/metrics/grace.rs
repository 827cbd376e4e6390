//! The grace period after a restart.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use server::GraceSnapshot;

use super::encode::{begin, gauge, gauge_seconds};

/// Maximum number of named clients, so that a scrape remains short.
pub(super) const NAMES_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    client: String,
}

/// Encodes whether there is a grace period, its longest remaining time, and the clients that it waits for.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    grace: Option<&GraceSnapshot>,
) -> Result<(), Error> {
    let waiting_for = grace.map(|grace| grace.waiting_for.count).unwrap_or_default();
    gauge(
        encoder,
        "enfys_grace_active",
        "1 while the grace period after a restart runs, in which new NFSv4 opens and locks wait; else 0.",
        u64::from(grace.is_some()),
    )?;
    gauge_seconds(
        encoder,
        "enfys_grace_left_seconds",
        "Longest time until the grace period ends; 0 when none runs.",
        grace.map(|grace| grace.left.as_secs_f64()).unwrap_or_default(),
    )?;
    gauge(
        encoder,
        "enfys_grace_clients_waited_for",
        "NFSv4 clients that may still reclaim their state from before the restart.",
        waiting_for as u64,
    )?;
    let mut family = begin(
        encoder,
        "enfys_grace_client_waited_for",
        "1 for each NFSv4 client, by its name, that may still reclaim; 16 clients at most.",
        MetricType::Gauge,
    )?;
    let Some(grace) = grace else { return Ok(()) };
    for name in &grace.waiting_for.names {
        // As in `enfys status`; the encoder escapes quotes.
        let labels = Labels { client: name.escape_ascii().to_string() };
        ConstGauge::new(1i64).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
