//! Conversion of OpenMetrics 1.0 to Prometheus' text format 0.0.4.
//!
//! Both have the same samples. In the text format, `# TYPE` and `# HELP` name a counter with `_total`, there is no `# UNIT` and
//! no `# EOF`, and `# HELP` does not escape quotes.

/// Converts an exposition without exemplars and timestamps.
pub(super) fn from_open_metrics(exposition: &str) -> String {
    let counters: Vec<&str> = exposition
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut text = String::with_capacity(exposition.len());
    for line in exposition.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        match line.strip_prefix("# ").map(|comment| comment.splitn(3, ' ').collect::<Vec<_>>()).as_deref() {
            Some([keyword, name, rest]) => {
                let total = if counters.contains(name) { "_total" } else { "" };
                let rest = if *keyword == "HELP" { rest.replace("\\\"", "\"") } else { (*rest).to_owned() };
                text.extend(["# ", keyword, " ", name, total, " ", &rest]);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_the_names_of_their_samples() {
        let open_metrics = "# HELP calls Calls of \\\"NFS\\\", a \\\\ too.\n# TYPE calls counter\ncalls_total{a=\"# TYPE\"} 1\n\
                            # HELP took_seconds Time.\n# TYPE took_seconds histogram\n# UNIT took_seconds seconds\n\
                            took_seconds_bucket{le=\"+Inf\"} 1\n# HELP calls_open Open.\n# TYPE calls_open gauge\n\
                            calls_open 2\n# EOF\n";
        let text = "# HELP calls_total Calls of \"NFS\", a \\\\ too.\n# TYPE calls_total counter\n\
                    calls_total{a=\"# TYPE\"} 1\n# HELP took_seconds Time.\n# TYPE took_seconds histogram\n\
                    took_seconds_bucket{le=\"+Inf\"} 1\n# HELP calls_open Open.\n# TYPE calls_open gauge\ncalls_open 2\n";
        assert_eq!(from_open_metrics(open_metrics), text);
    }
}
