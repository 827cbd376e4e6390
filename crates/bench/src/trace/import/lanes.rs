//! Streams for the operations of a client: a capture does not say which process did what.

use std::collections::HashMap;
use std::net::IpAddr;

use super::Found;
use crate::plan::{CLIENTS_MAX, THREADS_MAX};
use crate::trace::format::{Kind, Record};

/// The streams of all clients.
#[derive(Default)]
pub(super) struct Lanes {
    /// The clients in the order in which they were seen.
    pub(super) clients: Vec<IpAddr>,
    /// By client: when the last operation of each stream ends, in microseconds.
    ends: Vec<Vec<u64>>,
    /// The stream that opened a file.
    openers: HashMap<u64, u32>,
}

impl Lanes {
    /// Gives each operation its client, its stream and its time from the first one. An operation gets the first stream that is free,
    /// those of an open file that of the open if it is free; a close always gets that.
    pub(super) fn distribute(&mut self, mut found: Vec<Found>) -> Vec<Record> {
        found.sort_by_key(|found| found.began_us);
        let first_us = found.first().map_or(0, |found| found.began_us);
        let mut records = Vec::new();
        for found in found {
            let Some(client) = self.client(found.client) else { continue };
            let count = found.records.len() as u64;
            let (began_us, took_us) =
                (found.began_us - first_us, found.ended_us.saturating_sub(found.began_us));
            let file = found.records.iter().find_map(|record| record.file);
            let closes = found.records.iter().all(|record| record.op == Kind::Close);
            let stream = self.stream(client, file, closes, (began_us, began_us + took_us));
            for (number, mut record) in found.records.into_iter().enumerate() {
                // Operations of one call follow each other.
                let part = |number: u64| took_us * number / count;
                let number = number as u64;
                record.at_us = began_us + part(number);
                record.took_us = part(number + 1) - part(number);
                (record.client, record.stream) = (client as u32, stream);
                if let (Kind::Open, Some(file)) = (record.op, record.file) {
                    self.openers.insert(file, stream);
                }
                records.push(record);
            }
        }
        records
    }

    /// Returns a client's number; `None` if there are too many.
    fn client(&mut self, address: IpAddr) -> Option<usize> {
        if let Some(client) = self.clients.iter().position(|known| *known == address) {
            return Some(client);
        }
        if self.clients.len() as u32 >= CLIENTS_MAX {
            return None;
        }
        self.clients.push(address);
        self.ends.push(Vec::new());
        Some(self.clients.len() - 1)
    }

    fn stream(&mut self, client: usize, file: Option<u64>, closes: bool, (begin, end): (u64, u64)) -> u32 {
        let ends = &mut self.ends[client];
        let opener = file.and_then(|file| self.openers.get(&file)).copied();
        let is_free = |stream: &u32| ends[*stream as usize] <= begin;
        let free = opener
            .filter(|stream| closes || is_free(stream))
            .or_else(|| (0..ends.len() as u32).find(is_free));
        let last = (ends.len() as u32).saturating_sub(1);
        let stream = match free {
            Some(stream) => stream,
            None if ends.len() as u32 >= THREADS_MAX => last,
            None => {
                ends.push(0);
                ends.len() as u32 - 1
            }
        };
        let known = &mut ends[stream as usize];
        *known = (*known).max(end);
        stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_a_stream_do_not_overlap() {
        let found = |client: u8, began_us, ended_us| Found {
            client: [10, 0, 0, client].into(),
            began_us,
            ended_us,
            records: vec![Record { path: Some(String::new()), ..Record::new(Kind::Stat) }; 2],
        };
        let mut lanes = Lanes::default();
        let records = lanes.distribute(vec![
            found(1, 100, 120),
            found(1, 110, 130),
            found(2, 115, 116),
            found(1, 120, 125),
        ]);
        let places: Vec<(u32, u32, u64, u64)> = records
            .iter()
            .map(|record| (record.client, record.stream, record.at_us, record.ended_us()))
            .collect();
        assert_eq!(places[..4], [(0, 0, 0, 10), (0, 0, 10, 20), (0, 1, 10, 20), (0, 1, 20, 30)]);
        assert_eq!(places[4..], [(1, 0, 15, 15), (1, 0, 15, 16), (0, 0, 20, 22), (0, 0, 22, 25)]);
    }
}
