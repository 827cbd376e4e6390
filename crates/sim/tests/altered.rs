//! Clients whose server's messages are altered.

use sim::altered::play;
use sim::rng::Rng;

/// Versions that an input can select.
const VERSIONS: u8 = 4;

#[test]
fn every_operation_succeeds_where_nothing_is_altered() {
    for version in 0..VERSIONS {
        let played = play(&[version]);
        assert!(played.succeeded > 20 && played.failed == 0, "{version}: {played:?}");
        // The last of them is version 3.
        assert_eq!(played.recalled > 0, version < VERSIONS - 1, "{version}: {played:?}");
    }
}

#[test]
fn every_operation_ends_whatever_the_server_says() {
    let mut rng = Rng::new(1);
    let (mut succeeded, mut failed) = (0, 0);
    for number in 0..400 {
        let mut input = vec![number as u8];
        for _ in 0..1 + rng.below(12) {
            let kind = rng.below(9) as u8;
            let (gap, place) = (rng.below(20) as u8, rng.below(400) as u16);
            input.extend([gap, kind, (place >> 8) as u8, place as u8, rng.below(256) as u8]);
        }
        let played = play(&input);
        succeeded += played.succeeded;
        failed += played.failed;
    }
    assert!(succeeded > 1000 && failed > 100, "{succeeded} {failed}");
}
