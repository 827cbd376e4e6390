//! How the tests are spread over guests: what takes longest begins first, so that all guests end at about the same time.

use std::cmp::Reverse;

use super::Options;
use super::matrix::Combination;
use super::script::Script;

/// A combination whose tests take longer than this is given to several guests. A boot costs a few seconds: shorter
/// portions would boot more than they even out.
const PORTION_SECONDS_MAX: u64 = 200;

/// What one guest runs: some tests of one combination.
pub(super) struct Portion {
    /// Those of the whole run, with the portion's own tests.
    pub(super) options: Options,
    pub(super) combination: Combination,
    seconds: u64,
}

/// Spreads the tests of one combination evenly over as few portions as keep to the limit.
pub(super) fn of_combination(
    options: &Options,
    combination: Combination,
    scripts: &[Script],
) -> Vec<Portion> {
    let mut scripts: Vec<&Script> = scripts.iter().filter(|script| script.runs_in(&combination)).collect();
    scripts.sort_by_key(|script| Reverse(script.takes_seconds));
    let total: u64 = scripts.iter().map(|script| script.takes_seconds).sum();
    let count = total.div_ceil(PORTION_SECONDS_MAX);
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

/// The order in which a few guests at once are done soonest.
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
    fn every_test_is_in_one_portion_of_each_combination_that_it_runs_in() {
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
    fn no_portion_is_empty_and_the_longest_comes_first() {
        let mut portions = portions_of_all();
        longest_first(&mut portions);
        assert!(portions.iter().all(|portion| !portion.options.tests.is_empty()));
        assert!(portions.is_sorted_by(|a, b| a.seconds >= b.seconds));
    }
}
