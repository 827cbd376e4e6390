//! Rules by which a number confirms a paper's claim.
//!
//! A difference is confirmed by at least half of it: a loss of 3 % does not confirm "25 % slower".

use super::Verdict;

/// Returns whether a ratio is a loss of between half and double the claimed part.
pub(super) fn is_loss_of(ratio: f64, claimed: f64) -> bool {
    (claimed / 2.0..=claimed * 2.0).contains(&(1.0 - ratio))
}

/// Returns whether a ratio has at least half of a claimed gain: 1.6 for "2.2 times".
pub(super) fn is_gain_of(ratio: f64, claimed: f64) -> bool {
    ratio >= 1.0 + (claimed - 1.0) / 2.0
}

/// Returns whether a ratio is 1 within a tenth.
pub(super) fn is_equal(ratio: f64) -> bool {
    (0.9..=1.1).contains(&ratio)
}

/// Returns the verdict on a loss of version 4.1. It is reversed if nothing is lost and the paper's cause is missing: `excess`, a counter
/// of version 4.1 as a multiple of version 3's, has less than half of the paper's, `claimed_excess`.
pub(super) fn of_loss(ratio: f64, claimed: f64, excess: f64, claimed_excess: f64) -> Verdict {
    if is_loss_of(ratio, claimed) {
        Verdict::Confirmed
    } else if ratio >= 1.0 && !is_gain_of(excess, claimed_excess) {
        Verdict::Reversed
    } else {
        Verdict::NotSeen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_confirmed_by_half_to_double() {
        for (ratio, expected) in
            [(0.97, false), (0.875, true), (0.75, true), (0.5, true), (0.49, false), (1.0, false)]
        {
            assert_eq!(is_loss_of(ratio, 0.25), expected, "{ratio}");
        }
    }

    #[test]
    fn a_gain_is_confirmed_by_half() {
        assert!(is_gain_of(1.61, 2.2) && !is_gain_of(1.59, 2.2));
    }

    #[test]
    fn a_loss_is_reversed_only_without_its_cause() {
        assert_eq!(of_loss(0.88, 0.12, 1.56, 1.56), Verdict::Confirmed);
        assert_eq!(of_loss(1.05, 0.12, 1.0, 1.56), Verdict::Reversed);
        assert_eq!(of_loss(1.05, 0.12, 1.5, 1.56), Verdict::NotSeen, "the cause is here, its effect is not");
        assert_eq!(of_loss(0.98, 0.12, 1.0, 1.56), Verdict::NotSeen);
    }
}
