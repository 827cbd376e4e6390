//! `/proc/diskstats` (`Documentation/admin-guide/iostats.rst`): the counters of iostat(1).

use serde::{Deserialize, Serialize};

/// Bytes of a sector, whatever the disk's own sectors have.
const SECTOR_BYTES: u64 = 512;

/// Counters of a disk or a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskCounters {
    /// Its name.
    pub name: String,
    /// Reads that have ended.
    pub reads: u64,
    /// Reads that were merged with others before.
    pub merged_reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Sum of the times of reads, in milliseconds.
    pub read_ms: u64,
    /// Writes that have ended.
    pub writes: u64,
    /// Writes that were merged with others before.
    pub merged_writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Sum of the times of writes, in milliseconds.
    pub write_ms: u64,
    /// Time in which it did something, in milliseconds.
    pub busy_ms: u64,
    /// Sum of the times of all requests, waiting included, in milliseconds.
    pub weighted_ms: u64,
    /// Flushes of its cache that have ended; 0 before Linux 5.5.
    pub flushes: u64,
    /// Sum of their times, in milliseconds.
    pub flush_ms: u64,
}

impl DiskCounters {
    /// Parses a line: major and minor number, name, and eleven numbers or more.
    fn parse(line: &str) -> Option<((u64, u64), Self)> {
        let mut words = line.split_whitespace();
        let device = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let name = words.next()?.to_owned();
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [
            reads,
            merged_reads,
            read,
            read_ms,
            writes,
            merged_writes,
            written,
            write_ms,
            _,
            busy_ms,
            weighted_ms,
            ..,
        ] = numbers[..]
        else {
            return None;
        };
        // Four numbers of discards, then two of flushes.
        let (flushes, flush_ms) = numbers.get(15).copied().zip(numbers.get(16).copied()).unwrap_or_default();
        let counters = Self {
            name,
            reads,
            merged_reads,
            read_bytes: read.saturating_mul(SECTOR_BYTES),
            read_ms,
            writes,
            merged_writes,
            written_bytes: written.saturating_mul(SECTOR_BYTES),
            write_ms,
            busy_ms,
            weighted_ms,
            flushes,
            flush_ms,
        };
        Some((device, counters))
    }

    /// Returns the growth since `before`.
    pub(crate) fn since(self, before: &Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            merged_reads: self.merged_reads.saturating_sub(before.merged_reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            read_ms: self.read_ms.saturating_sub(before.read_ms),
            writes: self.writes.saturating_sub(before.writes),
            merged_writes: self.merged_writes.saturating_sub(before.merged_writes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            write_ms: self.write_ms.saturating_sub(before.write_ms),
            busy_ms: self.busy_ms.saturating_sub(before.busy_ms),
            weighted_ms: self.weighted_ms.saturating_sub(before.weighted_ms),
            flushes: self.flushes.saturating_sub(before.flushes),
            flush_ms: self.flush_ms.saturating_sub(before.flush_ms),
            name: self.name,
        }
    }
}

/// Returns the counters of the device with these numbers.
pub(crate) fn of_device(text: &str, device: (u64, u64)) -> Option<DiskCounters> {
    text.lines()
        .filter_map(DiskCounters::parse)
        .find(|(found, _)| *found == device)
        .map(|(_, counters)| counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Linux 6.18; the last line as Linux 4.17 and older write it.
    const TEXT: &str = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n \
        254       0 vda 80154 9419 4033802 25950 31120 50329 7369920 22901 0 8336 49834 9080 35 893736 841 4291 141\n \
        253       0 zram0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n   8       1 sda1 10 1 80 5 20 2 160 6 0 7 11\n";

    #[test]
    fn fields_are_those_of_iostat() {
        let disk = of_device(TEXT, (254, 0)).unwrap();
        assert_eq!(
            (disk.name.as_str(), disk.reads, disk.merged_reads, disk.read_ms),
            ("vda", 80_154, 9419, 25_950)
        );
        assert_eq!((disk.read_bytes, disk.written_bytes), (4_033_802 * 512, 7_369_920 * 512));
        assert_eq!((disk.writes, disk.merged_writes, disk.write_ms), (31_120, 50_329, 22_901));
        assert_eq!((disk.busy_ms, disk.weighted_ms, disk.flushes, disk.flush_ms), (8336, 49_834, 4291, 141));
        let old = of_device(TEXT, (8, 1)).unwrap();
        assert_eq!((old.written_bytes, old.busy_ms, old.weighted_ms, old.flushes), (81_920, 7, 11, 0));
        assert_eq!(of_device(TEXT, (8, 2)), None);
    }

    #[test]
    fn differences_are_by_field() {
        let before = of_device(TEXT, (254, 0)).unwrap();
        let later =
            TEXT.replace("254       0 vda 80154", "254       0 vda 80155").replace("7369920", "7369928");
        let growth = of_device(&later, (254, 0)).unwrap().since(&before);
        let expected =
            DiskCounters { name: "vda".to_owned(), reads: 1, written_bytes: 4096, ..DiskCounters::default() };
        assert_eq!(growth, expected);
    }

    #[test]
    fn unknown_and_damaged_lines_are_ignored() {
        let odd = format!("\n254 0 vda\n254 0 vda 1 2 3\n254 x vda 1\nfuture\n{TEXT}");
        assert_eq!(of_device(&odd, (254, 0)), of_device(TEXT, (254, 0)));
    }
}
