//! Plans from options of the command line, as the text of an equivalent plan file.

use super::Plan;

/// The options of `enfys bench run WORKLOAD`, each as it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanOptions {
    /// The workload.
    pub workload: String,
    /// Targets: `SERVER` or `NAME=SERVER`.
    pub targets: Vec<String>,
    /// Parameters: `KEY=VALUE,…`.
    pub set: Vec<String>,
    /// Versions of NFS.
    pub versions: Vec<String>,
    /// Alternative options of the client, each as in a URL's query.
    pub options: Vec<String>,
    /// Additional round trips.
    pub delays: Vec<String>,
    /// Threads of each client.
    pub threads: Vec<u32>,
    /// Clients.
    pub clients: Vec<u32>,
    /// Rounds.
    pub rounds: Option<u32>,
    /// Measured time.
    pub duration: Option<String>,
    /// Warm-up before it.
    pub warm_up: Option<String>,
    /// Seed.
    pub seed: Option<u64>,
    /// Where the counters of servers are that run already.
    pub scrape: Option<String>,
    /// How caches of targets are emptied; `None` for warm caches.
    pub cold: Option<String>,
}

/// The name of the text in messages, which [`PlanOptions::plan`] replaces by the option.
const FILE: &str = "command line";

/// A plan's text; each line knows the option that it is from.
#[derive(Default)]
struct Text {
    text: String,
    origins: Vec<String>,
}

impl Text {
    fn line(&mut self, origin: impl Into<String>, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
        self.origins.push(origin.into());
    }
}

impl PlanOptions {
    /// Returns the plan.
    ///
    /// # Errors
    /// All errors, one message each, with the option.
    pub fn plan(&self) -> Result<Plan, Vec<String>> {
        let text = self.text();
        let with_option = |why: String| {
            let rest = why.strip_prefix(FILE).and_then(|rest| rest.strip_prefix(':'));
            let Some((place, message)) = rest.and_then(|rest| rest.split_once(": ")) else { return why };
            let origin = place.parse::<usize>().ok().and_then(|line| text.origins.get(line - 1));
            origin.map_or_else(|| message.to_owned(), |origin| format!("{origin}: {message}"))
        };
        Plan::parse(FILE, &text.text).map_err(|errors| errors.into_iter().map(with_option).collect())
    }

    fn text(&self) -> Text {
        let mut text = Text::default();
        text.line("WORKLOAD", format!("name = {}", quoted(&self.workload)));
        let mut number = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                text.line(format!("--{name} {value}"), format!("{name} = {value}"));
            }
        };
        number("rounds", self.rounds.map(|rounds| rounds.to_string()));
        number("seed", self.seed.map(|seed| seed.to_string()));
        for (name, value) in [("duration", &self.duration), ("warm-up", &self.warm_up)] {
            if let Some(value) = value {
                text.line(format!("--{name} {value}"), format!("{name} = {}", quoted(value)));
            }
        }
        if let Some(cold) = &self.cold {
            text.line(format!("--cold {cold}"), "caches = \"cold\"");
        }
        self.matrix(&mut text);
        for (index, target) in self.targets.iter().enumerate() {
            self.target(&mut text, index, target);
        }
        text.line("WORKLOAD", "[[workload]]");
        text.line("WORKLOAD", format!("name = {}", quoted(&self.workload)));
        text.line("--set", "[workload.set]");
        for set in &self.set {
            let (key, values) = set.split_once('=').unwrap_or((set, ""));
            let values: Vec<String> = values.split(',').map(value).collect();
            text.line(format!("--set {set}"), format!("{} = [{}]", quoted(key), values.join(", ")));
        }
        text
    }

    fn matrix(&self, text: &mut Text) {
        text.line("", "[matrix]");
        let words = [
            ("versions", "--nfs", &self.versions),
            ("delays", "--delay", &self.delays),
            ("options", "--options", &self.options),
        ];
        for (key, option, values) in words {
            if !values.is_empty() {
                let list: Vec<String> = values.iter().map(|value| quoted(value)).collect();
                let origin = format!("{option} {}", values.join(","));
                text.line(origin, format!("{key} = [{}]", list.join(", ")));
            }
        }
        for (key, values) in [("threads", &self.threads), ("clients", &self.clients)] {
            if !values.is_empty() {
                let list: Vec<String> = values.iter().map(u32::to_string).collect();
                let list = list.join(",");
                text.line(format!("--{key} {list}"), format!("{key} = [{list}]"));
            }
        }
    }

    fn target(&self, text: &mut Text, index: usize, target: &str) {
        // `nfs://HOST/EXPORT?port=…` has an equals sign too, but not before its scheme.
        let is_name = |name: &str| !name.is_empty() && !name.contains(['/', ':', '?']);
        let named = target.split_once('=').filter(|(name, _)| is_name(name));
        let (name, server) = named.map_or_else(
            || (default_name(target, index), target),
            |(name, server)| (name.to_owned(), server),
        );
        let origin = format!("--target {target}");
        text.line(&origin, "[[target]]");
        text.line(&origin, format!("name = {}", quoted(&name)));
        text.line(&origin, format!("server = {}", quoted(server)));
        if let Some(cold) = &self.cold {
            text.line(format!("--cold {cold}"), format!("cold = {}", quoted(cold)));
        }
        if let Some(scrape) = self.scrape.as_ref().filter(|_| !server.starts_with("local:")) {
            text.line(format!("--scrape {scrape}"), format!("metrics = {}", quoted(scrape)));
        }
    }
}

/// Returns a name for a target without one.
fn default_name(server: &str, index: usize) -> String {
    if let Some(name) = server.strip_prefix("local:") {
        return name.to_owned();
    }
    if let Some(rest) = server.strip_prefix("nfs://") {
        return rest.split(['/', '?']).next().unwrap_or(rest).to_owned();
    }
    let last = server.rsplit('/').find(|name| !name.is_empty());
    last.map_or_else(|| format!("target-{}", index + 1), str::to_owned)
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// Returns a parameter's value as TOML.
fn value(text: &str) -> String {
    match text {
        "true" | "false" => text.to_owned(),
        _ if text.parse::<u64>().is_ok() => text.to_owned(),
        _ => quoted(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> PlanOptions {
        PlanOptions {
            workload: "random-read".to_owned(),
            targets: vec!["local:enfys-memory".to_owned(), "far=nfs://10.0.0.1/export?port=4049".to_owned()],
            ..PlanOptions::default()
        }
    }

    #[test]
    fn options_multiply_as_in_a_file() {
        let set = vec!["io-size=4KiB,1MiB".to_owned(), "file-size=67108864".to_owned()];
        let versions = vec!["3".to_owned(), "4.1".to_owned(), "4.2".to_owned()];
        let plan = PlanOptions { set, versions, threads: vec![1, 16], rounds: Some(2), ..options() }.plan();
        let plan = plan.unwrap();
        assert_eq!(plan.cases.len(), 2 * 2 * 3 * 2, "targets, sizes, versions and threads");
        assert_eq!(plan.runs().len(), 48);
        let names: std::collections::BTreeSet<_> =
            plan.cases.iter().map(|case| case.target.name.as_str()).collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["enfys-memory", "far"]);
    }

    #[test]
    fn every_error_names_its_option() {
        let wrong = PlanOptions {
            set: vec!["io-sise=4KiB".to_owned(), "file-size=big".to_owned()],
            targets: vec!["local:enfis".to_owned()],
            duration: Some("1ms".to_owned()),
            options: vec!["slots=0".to_owned()],
            ..options()
        };
        let errors = wrong.plan().unwrap_err();
        for start in [
            "--set io-sise=4KiB: random-read has no parameter `io-sise` (did you mean `io-size`?)",
            "--set file-size=big: file-size: `big`: expected a size",
            "--target local:enfis: no local server `enfis` (did you mean `enfys`?)",
            "--duration 1ms: ",
            "--options slots=0: `slots=0`: expected slots=N, from 1 to 1024",
        ] {
            assert!(errors.iter().any(|error| error.starts_with(start)), "{start}: {errors:?}");
        }
        assert_eq!(errors.len(), 5, "{errors:?}");
    }

    #[test]
    fn cold_caches_need_a_way() {
        let cold = PlanOptions { cold: Some("restart".to_owned()), ..options() };
        let errors = cold.plan().unwrap_err();
        assert_eq!(errors, ["--cold restart: the bench restarts local: servers only"]);
    }
}
