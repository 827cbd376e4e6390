//! Fairness between clients: Jain's index, and clusters of winners and losers.

use super::are_usable;

/// Winners' mean must be at least this many times that of the losers to be called a cluster. Hash-Cast gives 2.
const CLUSTER_RATIO_MIN: f64 = 1.25;
/// Part of the variance that a division into two clusters must explain.
const CLUSTER_EXPLAINED_MIN: f64 = 0.8;

/// Returns Jain's fairness index of the clients' rates: 1 if all are equal, 1/n if one client has everything.
///
/// `None` without clients, if a rate is negative or not a number, or if all rates are 0.
#[must_use]
pub fn jain(rates: &[f64]) -> Option<f64> {
    if !are_usable(rates) || rates.iter().any(|rate| *rate < 0.0) {
        return None;
    }
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    (squares > 0.0).then(|| sum * sum / (rates.len() as f64 * squares))
}

/// Clients in two clusters.
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    /// Indices of the fast clients, the fastest first.
    pub winners: Vec<usize>,
    /// Indices of the slow clients, the fastest first.
    pub losers: Vec<usize>,
    /// Mean rate of the winners, divided by that of the losers; infinite if the losers did nothing.
    pub ratio: f64,
}

/// Divides clients into winners and losers, if their rates form two clusters.
///
/// The division is the one with the least variance inside clusters (k-means with k = 2, exact in one dimension). Rates
/// that differ little, or spread evenly, are not clusters.
#[must_use]
pub fn clusters(rates: &[f64]) -> Option<Clusters> {
    if rates.len() < 2 || !are_usable(rates) || rates.iter().any(|rate| *rate < 0.0) {
        return None;
    }
    let mut order: Vec<usize> = (0..rates.len()).collect();
    order.sort_by(|a, b| rates[*b].total_cmp(&rates[*a]));
    let mean = |clients: &[usize]| clients.iter().map(|c| rates[*c]).sum::<f64>() / clients.len() as f64;
    let scatter = |clients: &[usize]| {
        let mean = mean(clients);
        clients.iter().map(|client| (rates[*client] - mean).powi(2)).sum::<f64>()
    };
    let within = |at: usize| scatter(&order[..at]) + scatter(&order[at..]);
    let at = (1..order.len()).min_by(|a, b| within(*a).total_cmp(&within(*b)))?;
    let (winners, losers) = order.split_at(at);
    let ratio = mean(winners) / mean(losers);
    let explained = 1.0 - within(at) / scatter(&order);
    let are_clusters = ratio >= CLUSTER_RATIO_MIN && explained >= CLUSTER_EXPLAINED_MIN;
    are_clusters.then(|| Clusters { winners: winners.to_vec(), losers: losers.to_vec(), ratio })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jain, Chiu and Hawe, DEC-TR-301 (1984): if k of n users share equally and the others get nothing, the index is
    /// k/n; $20 divided among 100 persons as 20 × $1 gives 0.20.
    #[test]
    fn index_of_jains_examples() {
        let mut dollars = vec![1.0; 20];
        dollars.resize(100, 0.0);
        assert!((jain(&dollars).unwrap() - 0.2).abs() < 1e-12);
        assert_eq!(jain(&[5.0; 7]), Some(1.0));
        // By hand: (2 + 2 + 2 + 1 + 1)² ⁄ (5 · (4 + 4 + 4 + 1 + 1)) = 64 ⁄ 70.
        assert!((jain(&[2.0, 2.0, 2.0, 1.0, 1.0]).unwrap() - 64.0 / 70.0).abs() < 1e-12);
        assert_eq!(jain(&[0.0, 0.0]), None);
        assert_eq!(jain(&[1.0, -1.0]), None);
        assert_eq!(jain(&[]), None);
    }

    /// The end of Figure 3 of the 2015 paper: clients 2 and 4 share a queue.
    #[test]
    fn hash_cast_has_three_winners_and_two_losers() {
        let found = clusters(&[290.0, 150.0, 301.0, 145.0, 295.0]).unwrap();
        assert_eq!((found.winners, found.losers), (vec![2, 4, 0], vec![1, 3]));
        assert!((1.9..2.1).contains(&found.ratio));
    }

    #[test]
    fn equal_and_evenly_spread_rates_are_no_clusters() {
        assert_eq!(clusters(&[100.0, 101.0, 99.0, 100.0]), None);
        assert_eq!(clusters(&[100.0, 110.0, 120.0, 130.0, 140.0, 150.0]), None);
        assert_eq!(clusters(&[5.0, 5.0]), None);
        assert_eq!(clusters(&[5.0]), None);
        assert_eq!(clusters(&[5.0, 0.0]).unwrap().ratio, f64::INFINITY);
    }
}
