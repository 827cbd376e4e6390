//! Settings that cannot be measured, and a small measurement.

use super::*;

struct Having {
    programs: &'static [&'static str],
    writable: bool,
}

impl Machine for Having {
    fn has_program(&self, name: &str) -> bool {
        self.programs.contains(&name)
    }
    fn has_file(&self, _: &Path) -> bool {
        false
    }
    fn can_write(&self, _: &Path) -> Result<(), String> {
        if self.writable { Ok(()) } else { Err("not a directory".to_owned()) }
    }
    fn is_remote(&self, _: &Path) -> bool {
        false
    }
    fn is_root(&self) -> bool {
        false
    }
}

fn settings(directory: &Path, parts: &[Part]) -> Settings {
    Settings {
        directory: directory.to_owned(),
        file_bytes: 1 << 20,
        duration: Duration::from_secs(1),
        rounds: 1,
        threads: 2,
        files: 1024,
        parts: parts.to_vec(),
        is_warm: true,
        interrupted: Arc::default(),
    }
}

#[test]
fn what_cannot_be_measured_is_said_before() {
    let all = [Part::Data, Part::Names, Part::Cpu];
    let settings = settings(Path::new("/srv"), &all);
    let check = |settings: &Settings, programs, writable| {
        settings.check(&Having { programs, writable }).err().unwrap_or_default()
    };
    const BOTH: &[&str] = &["fio", "bonnie++"];
    assert_eq!(check(&settings, BOTH, true), "");
    assert_eq!(check(&settings, BOTH, false), "/srv: not a directory");
    assert_eq!(
        check(&settings, &["bonnie++"], true),
        "`fio` is not installed: on Debian, `apt-get install fio`"
    );
    assert_eq!(
        check(&settings, &["fio"], true),
        "`bonnie++` is not installed: on Debian, `apt-get install bonnie++`"
    );
    let cpu = Settings { parts: vec![Part::Cpu], ..settings.clone() };
    assert_eq!(check(&cpu, &[], true), "", "a program that is not used is not needed");
    for (wrong, why) in [
        (Settings { file_bytes: 4096, ..settings.clone() }, "--file-size"),
        (Settings { rounds: 0, ..settings.clone() }, "--rounds"),
        (Settings { files: 1000, ..settings.clone() }, "--files"),
        (Settings { threads: 0, ..settings.clone() }, "--threads"),
        (Settings { duration: Duration::from_millis(10), ..settings.clone() }, "--duration"),
    ] {
        assert!(check(&wrong, BOTH, true).starts_with(why), "{why}");
    }
}

#[test]
fn both_sides_have_a_rate_of_each_measure_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut told = Vec::new();
    let report = settings(directory.path(), &[Part::Data, Part::Cpu])
        .run(&mut |what| told.push(what.to_owned()))
        .unwrap();
    assert_eq!(told.len(), 2 * 4 + 2, "{told:?}");
    assert_eq!(report.data.len(), 4);
    for pair in &report.data {
        assert_eq!((pair.ours.len(), pair.theirs.len()), (1, 1), "{}", pair.name);
        assert!(pair.ours[0] > 0.0 && pair.theirs[0] > 0.0, "{pair:?}");
        assert_eq!(pair.verdict(), Verdict::Undecided, "one round decides nothing");
    }
    assert_eq!(report.cpu.shares().len(), 1);
    assert!(report.cpu.ours_total_ns[0] > 0.0 && report.cpu.bare_total_ns[0] > 0.0);
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[test]
fn names_are_measured_by_both_sides() {
    let directory = tempfile::tempdir().unwrap();
    let report = settings(directory.path(), &[Part::Names]).run(&mut |_| {}).unwrap();
    let seen: Vec<&str> = report.names.iter().map(|pair| pair.name).collect();
    assert_eq!(seen, NAMES);
    for pair in &report.names {
        // 1,024 files may be too few for Bonnie++.
        assert_eq!(pair.ours.len() + pair.too_short as usize, 1, "{pair:?}");
        assert_eq!(pair.ours.len(), pair.theirs.len());
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}

#[test]
fn an_interrupt_ends_it() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path(), &[Part::Data]);
    settings.interrupted.store(true, Ordering::Relaxed);
    assert_eq!(settings.run(&mut |_| {}).unwrap_err(), "interrupted");
    assert_eq!(directory.path().read_dir().unwrap().count(), 0);
}
