//! Distribution of tests over guests: the longest portions start first, so that all guests end at about the same time.

use std::cmp::Reverse;

use super::Options;
use super::matrix::Combination;
use super::script::Script;

/// Maximum time of a portion; a longer combination has several. A boot costs a few seconds, so shorter portions would take more
/// time in total.
const PORTION_SECONDS_MAX: u64 = 200;

/// The tests of one guest: some tests of one combination.
pub(super) struct Portion {
    /// The options of the run, with the portion's tests.
    pub(super) options: Options,
    pub(super) combination: Combination,
    seconds: u64,
}

/// Distributes the tests of one combination evenly over as few portions as the limit allows.
pub(super) fn of_combination(
    options: &Options,
    combination: Combination,
    scripts: &[Script],
) -> Vec<Portion> {
    let mut scripts: Vec<&Script> = scripts.iter().filter(|script| script.runs_in(&combination)).collect();
    scripts.sort_by_key(|script| Reverse(script.takes_seconds));
    let total: u64 = scripts.iter().map(|script| script.takes_seconds).sum();
    // A portion without tests would run all.
    let count = total.div_ceil(PORTION_SECONDS_MAX).min(scripts.len() as u64);
    let mut portions: Vec<Portion> = (0..count)
        .map(|number| {
            let options = Options { tests: Vec::new(), portion: number as u8, ..options.clone() };
            Portion { options, combination, seconds: 0 }
        })
        .collect();
    for script in scripts {
        if let Some(portion) = portions.iter_mut().min_by_key(|portion| portion.seconds) {
            portion.seconds += script.takes_seconds;
            portion.options.tests.push(script.name.clone());
        }
    }
    portions
}

/// Sorts portions by time, longest first.
pub(super) fn longest_first(portions: &mut [Portion]) {
    portions.sort_by_key(|portion| Reverse(portion.seconds));
}

#[cfg(test)]
mod tests {
    use super::super::scripts_dir;
    use super::*;

    fn portions_of_all() -> Vec<Portion> {
        let scripts = Script::all(&scripts_dir().join("guest")).expect("readable scripts");
        Combination::all().flat_map(|it| of_combination(&Options::default(), it, &scripts)).collect()
    }

    #[test]
    fn every_test_is_in_one_portion_per_combination() {
        let scripts = Script::all(&scripts_dir().join("guest")).expect("readable scripts");
        let portions = portions_of_all();
        for combination in Combination::all() {
            let here = || portions.iter().filter(|portion| portion.combination == combination);
            let mut names: Vec<&String> = here().flat_map(|portion| &portion.options.tests).collect();
            names.sort();
            let wanted: Vec<&String> =
                scripts.iter().filter(|it| it.runs_in(&combination)).map(|it| &it.name).collect();
            assert_eq!(names, wanted, "{combination}");
            let mut numbers: Vec<u8> = here().map(|portion| portion.options.portion).collect();
            numbers.dedup();
            assert_eq!(numbers.len(), here().count(), "{combination}: two guests in one directory");
        }
    }

    #[test]
    fn one_long_test_has_one_portion() {
        let scripts = Script::all(&scripts_dir().join("timings")).expect("readable scripts");
        let longest = scripts.into_iter().max_by_key(|script| script.takes_seconds).expect("a script");
        assert!(longest.takes_seconds > PORTION_SECONDS_MAX);
        for combination in Combination::all().filter(|it| longest.runs_in(it)) {
            let portions = of_combination(&Options::default(), combination, std::slice::from_ref(&longest));
            assert_eq!(portions.len(), 1, "{combination}");
        }
    }

    #[test]
    fn portions_are_not_empty_and_sorted_by_time() {
        let mut portions = portions_of_all();
        longest_first(&mut portions);
        assert!(portions.iter().all(|portion| !portion.options.tests.is_empty()));
        assert!(portions.is_sorted_by(|a, b| a.seconds >= b.seconds));
    }
}
