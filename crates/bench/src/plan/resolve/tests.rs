//! Valid and invalid plans.

use super::*;

const PLAN: &str = r#"
name = "create"
rounds = 3
duration = "10s"
warm-up = "0"
seed = 7

[matrix]
versions = ["3", "4.1"]
delays = ["0", "10ms"]
threads = [1, 16]

[[target]]
name = "enfys"
server = "local:enfys"

[[target]]
name = "disk"
server = "/srv/disk"

[[workload]]
name = "create"
set = { size = ["0", "4KiB"] }
"#;

fn plan(text: &str) -> Plan {
    Plan::parse("plan.toml", text).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

#[track_caller]
fn errors(text: &str) -> Vec<String> {
    Plan::parse("plan.toml", text).expect_err("a wrong plan")
}

/// Returns the plan with one line replaced.
#[track_caller]
fn with(line: &str, other: &str) -> String {
    assert!(PLAN.contains(line));
    PLAN.replace(line, other)
}

#[test]
fn a_plan_multiplies_everything_it_varies() {
    let plan = plan(PLAN);
    // Enfys: 2 sizes × 2 versions × 2 delays × 2 threads; the disk, whose mount determines the version and delay: 2 sizes × 2 threads.
    assert_eq!(plan.cases.len(), 16 + 4);
    let labels: Vec<String> = plan.cases[..4].iter().map(Case::label).collect();
    assert_eq!(
        labels,
        [
            "create-enfys-v3-0-t1-c1",
            "create-enfys-v4.1-0-t1-c1",
            "create-disk-mounted-0-t1-c1",
            "create-enfys-v3-0-t16-c1"
        ]
    );
    assert_eq!(plan.cases[0].parameters["files"], Value::Count(10_000), "a default");
    assert_eq!(plan.least_time(), Duration::from_secs(3 * 20 * 10));
}

#[test]
fn options_of_the_client_multiply_and_a_target_may_have_its_own() {
    let text = with("threads = [1, 16]", "threads = [1]\noptions = ['', 'slots=16', 'caches=on&nconnect=2']");
    let own = text.replace("\"local:enfys\"", "\"local:enfys\"\noptions = ['noac']");
    let options = |text: &str| {
        let plan = plan(text);
        plan.cases.iter().map(|case| case.options.clone()).collect::<BTreeSet<_>>()
    };
    // 2 sizes × 2 versions × 2 delays × 3 options, and 2 sizes of the disk, which has none.
    assert_eq!(plan(&text).cases.len(), 24 + 2);
    assert_eq!(options(&text), BTreeSet::from(["", "slots=16", "caches=on&nconnect=2"].map(str::to_owned)));
    assert_eq!(options(&own), BTreeSet::from(["", "noac"].map(str::to_owned)));
    let label = plan(&text).cases.iter().map(Case::label).find(|label| label.contains("nconnect"));
    assert_eq!(label.as_deref(), Some("create-enfys-v3-0-t1-c1-caches_on_nconnect_2"));
    let wrong = errors(&text.replace("slots=16", "slots=5000"));
    assert_eq!(wrong, ["plan.toml:12: `slots=5000`: expected slots=N, from 1 to 1024"]);
}

#[test]
fn counters_are_at_a_port() {
    let at = |metrics: &str| with("\"/srv/disk\"", &format!("\"/srv/disk\"\nmetrics = \"{metrics}\""));
    assert_eq!(plan(&at("host:9100")).cases[2].target.metrics.as_deref(), Some("host:9100"));
    for wrong in ["host", "http://host/metrics", "host:port"] {
        assert!(errors(&at(wrong))[0].starts_with("plan.toml:20: `"), "{wrong}");
    }
}

#[test]
fn every_round_has_every_case_and_begins_with_another() {
    let plan = plan(PLAN);
    let runs = plan.runs();
    assert_eq!(runs.len(), 60);
    let ids: BTreeSet<_> = runs.iter().map(|run| &run.id).collect();
    assert_eq!(ids.len(), 60, "ids are unique");
    let rounds: Vec<_> = runs.chunks(20).collect();
    for (round, runs) in rounds.iter().enumerate() {
        assert!(runs.iter().all(|run| run.round as usize == round + 1 && run.seed == runs[0].seed));
    }
    assert_ne!(rounds[0][0].case, rounds[1][0].case);
    assert_ne!(rounds[0][0].seed, rounds[1][0].seed);
}

#[test]
fn an_interrupted_plan_continues() {
    let runs = plan(PLAN).runs();
    let done: BTreeSet<_> = runs[..25].iter().map(|run| run.id.clone()).collect();
    assert_eq!(plan(PLAN).remaining(&done), runs[25..]);
}

#[test]
fn an_id_depends_only_on_properties_that_affect_the_result() {
    let ids = |text: &str| plan(text).runs().into_iter().map(|run| run.id).collect::<BTreeSet<_>>();
    assert_eq!(ids(PLAN), ids(&with("name = \"create\"\nrounds", "name = \"other\"\nrounds")));
    assert!(
        ids(PLAN).is_subset(&ids(&with("rounds = 3", "rounds = 4"))),
        "more rounds keep those that are done"
    );
    assert!(ids(PLAN).is_disjoint(&ids(&with("duration = \"10s\"", "duration = \"11s\""))));
    assert!(ids(PLAN).is_disjoint(&ids(&with("seed = 7", "seed = 8"))));
    let other = ids(&with("threads = [1, 16]", "threads = [1]"));
    assert!(other.is_subset(&ids(PLAN)), "fewer cases keep their ids");
}

#[test]
fn unknown_keys_are_refused_with_line_and_expectation() {
    for (line, other, expected) in [
        (
            "rounds = 3",
            "round = 3",
            "plan.toml:3: unknown key `round` (did you mean `rounds`?), expected one of",
        ),
        (
            "threads =",
            "thread =",
            "plan.toml:11: unknown key `thread` (did you mean `threads`?), expected one of",
        ),
        ("server = \"local:enfys\"", "url = 'x'", "plan.toml:15: unknown key `url`, expected one of"),
        (
            "set = { size",
            "set = { seize",
            "plan.toml:23: create has no parameter `seize` (did you mean `size`?)",
        ),
    ] {
        let found = errors(&with(line, other));
        assert!(found[0].starts_with(expected), "{found:#?}");
    }
}

#[test]
fn wrong_values_are_refused_with_their_line() {
    for (line, other, expected) in [
        ("rounds = 3", "rounds = 0", "plan.toml:3: 0 rounds: expected 1 to 1000"),
        ("rounds = 3", "rounds = \"3\"", "plan.toml:3: invalid type"),
        ("duration = \"10s\"", "duration = \"10\"", "plan.toml:4: `10`: expected a time with its unit"),
        ("duration = \"10s\"", "duration = \"10ms\"", "plan.toml:4: a run is measured for at least 1s"),
        ("[\"3\", \"4.1\"]", "[\"3\", \"5\"]", "plan.toml:9: unknown value `5`"),
        ("[\"3\", \"4.1\"]", "[]", "plan.toml:9: an empty list"),
        ("threads = [1, 16]", "threads = [1, 1]", "plan.toml:11: the same value twice"),
        ("threads = [1, 16]", "threads = [5000]", "plan.toml:11: 5000 threads: expected 1 to 4096"),
        (
            "\"local:enfys\"",
            "\"local:enfis\"",
            "plan.toml:15: no local server `enfis` (did you mean `enfys`?)",
        ),
        ("\"local:enfys\"", "\"enfys\"", "plan.toml:15: `enfys`: expected nfs://HOST/EXPORT"),
        ("\"/srv/disk\"", "\"/srv/disk\"\ndelays = ['1ms']", "plan.toml:20: a mounted directory has"),
        (
            "\"/srv/disk\"",
            "\"nfs://host/export\"",
            "plan.toml:19: the bench delays packets of local: servers only",
        ),
        ("name = \"disk\"", "name = \"enfys\"", "plan.toml:18: a second target `enfys`"),
        (
            "name = \"create\"\nset",
            "name = \"creat\"\nset",
            "plan.toml:22: no workload `creat` (did you mean `create`?)",
        ),
        ("\"4KiB\"", "\"4kb\"", "plan.toml:23: size: `4kb`: expected a size"),
        ("\"4KiB\"", "\"0B\"", "plan.toml:22: workload `create` twice with the same parameters"),
        (
            "seed = 7",
            "seed = 7\ncaches = 'cold'",
            "plan.toml:14: caches = \"cold\", but this target does not say how",
        ),
    ] {
        let found = errors(&with(line, other));
        assert!(found[0].starts_with(expected), "{found:#?}");
    }
    assert_eq!(errors("").len(), 2, "neither targets nor workloads");
}

#[test]
fn all_errors_are_found_at_once() {
    let text = with("rounds = 3", "rounds = 0").replace("threads = [1, 16]", "threads = [0, 16]");
    assert_eq!(errors(&text).len(), 2);
}

#[test]
fn each_target_is_made_cold_by_its_own_method() {
    let cold = |server: &str, cold: &str| {
        let text = with("\"local:enfys\"", &format!("\"{server}\"\ncold = \"{cold}\"")).replace("10ms", "0s");
        Plan::parse("plan.toml", &text.replace("\"0\", ", ""))
    };
    let made = |server, how| cold(server, how).unwrap().cases[0].target.cold.clone();
    assert_eq!(made("local:enfys", "restart"), Some(Cold::Restart));
    assert_eq!(made("nfs://host/export", "new-client"), Some(Cold::NewClient));
    assert_eq!(
        made("/mnt", "command: umount /mnt && mount /mnt"),
        Some(Cold::Command("umount /mnt && mount /mnt".into()))
    );
    for (server, how) in
        [("/mnt", "restart"), ("/mnt", "new-client"), ("local:enfys", "melt"), ("/mnt", "command:")]
    {
        assert!(cold(server, how).is_err(), "{server} {how}");
    }
}

struct Bare;

impl Machine for Bare {
    fn has_program(&self, _: &str) -> bool {
        false
    }
    fn has_file(&self, _: &Path) -> bool {
        false
    }
    fn can_write(&self, _: &Path) -> Result<(), String> {
        Err("No such file or directory".to_owned())
    }
    fn is_remote(&self, _: &Path) -> bool {
        true
    }
    fn is_root(&self) -> bool {
        false
    }
}

#[test]
fn missing_prerequisites_are_reported_with_their_line() {
    let text = with("\"local:enfys\"", "\"local:ganesha\"\ncold = \"drop-caches\"");
    let missing = plan(&text).check(&Bare);
    for expected in [
        "plan.toml:15: `ganesha.nfsd` is not installed: on Debian, `apt-get install nfs-ganesha nfs-ganesha-vfs`",
        "plan.toml:15: ganesha: only root can do this",
        "plan.toml:16: cold = \"drop-caches\": only root can do this",
        "plan.toml:20: /srv/disk: No such file or directory",
    ] {
        assert!(missing.iter().any(|why| why == expected), "{expected}: {missing:#?}");
    }
}

#[test]
fn a_server_that_is_made_for_each_run_is_not_restarted() {
    let text = with("\"local:enfys\"", "\"local:knfsd\"\ncold = \"restart\"");
    assert_eq!(errors(&text), ["plan.toml:16: each run has a server of its own, whose files it makes"]);
}

#[test]
fn three_rounds_are_few() {
    assert!(plan(PLAN).advice().unwrap().contains("at least 6"));
    assert_eq!(plan(&with("rounds = 3", "rounds = 6")).advice(), None);
}

#[test]
fn only_servers_that_the_bench_starts_have_a_link() {
    let local = plan(&with("\"local:enfys\"", "\"local:enfys\"\noptions = [\"rate=1gbit\"]"));
    assert!(local.cases.iter().any(|case| case.link().bits_per_second == Some(1_000_000_000)));
    let remote = with("\"local:enfys\"", "\"nfs://host/x\"\ndelays = [\"0\"]\noptions = [\"rate=1gbit\"]");
    let why = errors(&remote);
    assert!(
        why.iter()
            .any(|why| why.contains("`rate` and `tcp_buffer` apply to the links of local: servers only")),
        "{why:?}"
    );
}

#[test]
fn a_database_by_the_program_needs_it_and_a_directory() {
    let database = |set: &str| {
        PLAN.replace(
            "name = \"create\"\nset = { size = [\"0\", \"4KiB\"] }",
            &format!("name = \"database\"\nset = {{ {set} }}"),
        )
    };
    let disk =
        |set: &str| database(set).replace("[[target]]\nname = \"enfys\"\nserver = \"local:enfys\"\n", "");
    assert_eq!(
        errors(&database("engine = 'sqlite3'")),
        ["plan.toml:22: engine = \"sqlite3\" needs a mounted directory, and local:enfys is none"]
    );
    assert_eq!(
        errors(&database("journal = 'wal'")),
        ["plan.toml:22: database: the model has the journal mode `delete` alone: set engine = \"sqlite3\""]
    );
    assert_eq!(
        errors(&database("rows = 9, table-rows = 8")),
        ["plan.toml:22: database: a transaction of 9 rows, and the table has 8"]
    );
    assert_eq!(
        errors(&database("journal = 'undo'")),
        ["plan.toml:23: journal: `undo`: expected one of delete, truncate, persist, wal"]
    );
    let missing = plan(&disk("engine = 'sqlite3', journal = ['delete', 'wal']")).check(&Bare);
    for expected in [
        "plan.toml:19: `sqlite3` is not installed: on Debian, `apt-get install sqlite3`",
        "plan.toml:19: journal = \"wal\" needs memory that processes share by a file, which /srv/disk on a server does not have",
    ] {
        assert!(missing.iter().any(|why| why == expected), "{expected}: {missing:#?}");
    }
}
