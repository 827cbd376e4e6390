//! Landlock (landlock(7)): a server whose exports cannot change has no access to other files.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError,
};
use rustix::thread::{CapabilitySet, capabilities};

use crate::cli::ServeArguments;
use crate::exports::Source;
use crate::plan::Plan;

/// Paths that getent(1) and the C library's name services read or run, and kernel files that the server reads.
const READABLE: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/var/lib/sss",
    "/var/lib/extrausers",
    "/var/db",
    "/nix/store",
    "/gnu/store",
];
/// The access rights that this program knows; the kernel may know fewer.
const KNOWN: ABI = ABI::V6;

/// The reason why Landlock is off for a server that can open files by handle.
const OPENS_BY_HANDLE: &str = "incompatible with open_by_handle_at";

/// Removes this thread's access to all files that are neither in the exports nor needed to serve them.
///
/// # Errors
/// Why Landlock is off.
pub fn restrict(plan: &Plan, arguments: &ServeArguments) -> Result<(), String> {
    if let Some(why) = why_not(plan, arguments) {
        return Err(why.into());
    }
    let rules = rules(plan).map_err(|error| error.to_string())?;
    rules.restrict_self().map(drop).map_err(|error| error.to_string())
}

/// Returns the reason if the files that this server needs are not known now.
fn why_not(plan: &Plan, arguments: &ServeArguments) -> Option<&'static str> {
    if arguments.config.is_some() {
        return Some("exports may be reloaded");
    }
    if plan.wants_kerberos() {
        return Some("the files of Kerberos are not known");
    }
    // Landlock walks from a file up to an allowed directory. A file that is opened by handle has no directory until it is looked up
    // by name, so it would be refused.
    let opens_by_handle =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::DAC_READ_SEARCH));
    opens_by_handle.then_some(OPENS_BY_HANDLE)
}

/// Returns the rules: paths and access rights.
fn rules(plan: &Plan) -> Result<RulesetCreated, RulesetError> {
    let all = AccessFs::from_all(KNOWN);
    let ruleset = Ruleset::default()
        // Before Linux 5.19, Landlock refuses all renames and links into another directory.
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?;
    // Files that clients can write must not be executable.
    let served = all & !BitFlags::from(AccessFs::Execute);
    let ruleset = directories(plan).iter().try_fold(ruleset, |ruleset, path| allow(ruleset, path, served))?;
    let ruleset = allow(ruleset, Path::new("/dev/null"), AccessFs::ReadFile | AccessFs::WriteFile)?;
    let read = AccessFs::from_read(KNOWN);
    READABLE.iter().try_fold(ruleset, |ruleset, path| allow(ruleset, Path::new(path), read))
}

/// Returns the directories in which the server creates and changes files.
fn directories(plan: &Plan) -> Vec<PathBuf> {
    let exports = plan.exports.iter().filter_map(|export| match &export.source {
        Source::Directory(path) => Some(path.clone()),
        Source::Memory(_) | Source::Elsewhere(_) => None,
    });
    let of_control = plan.control.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    exports.chain(plan.state_dir.clone()).chain(of_control).collect()
}

/// Allows access below a path. A path that cannot be opened is skipped: the code that needs it reports the error.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(fd) => ruleset.add_rule(PathBeneath::new(fd, access)),
        Err(_) => Ok(ruleset),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;

    use super::*;

    fn plan_of(directory: &Path, more: &[&str]) -> (Plan, ServeArguments) {
        let (export, state) = (directory.join("export"), directory.join("state"));
        fs::create_dir_all(&export).unwrap();
        fs::create_dir_all(&state).unwrap();
        let arguments = ServeArguments {
            paths: vec![export.display().to_string()],
            state_dir: Some(state),
            sec: more.iter().map(|flavor| (*flavor).to_owned()).collect(),
            ..ServeArguments::default()
        };
        (Plan::new(&arguments).unwrap(), arguments)
    }

    #[test]
    fn files_outside_the_exports_cannot_be_accessed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (plan, _) = plan_of(directory.path(), &[]);
        fs::create_dir_all(path("export/a")).unwrap();
        fs::create_dir_all(path("export/b")).unwrap();
        fs::write(path("outside"), "secret").unwrap();
        let restricted = || {
            let rules = match rules(&plan) {
                Ok(rules) => rules,
                Err(error) => return println!("skipped: this kernel has no Landlock: {error}"),
            };
            rules.restrict_self().unwrap();
            let refused = |done: std::io::Result<()>| {
                assert_eq!(done.map_err(|error| error.kind()), Err(ErrorKind::PermissionDenied));
            };
            refused(fs::read(path("outside")).map(drop));
            refused(fs::write(path("outside"), "changed"));
            refused(fs::write(path("new"), ""));
            refused(fs::read_dir(directory.path()).map(drop));
            refused(fs::write("/etc/enfys.toml", ""));
            fs::write(path("export/a/file"), "content").unwrap();
            fs::rename(path("export/a/file"), path("export/b/file")).unwrap();
            fs::hard_link(path("export/b/file"), path("export/a/link")).unwrap();
            assert_eq!(fs::read(path("export/a/link")).unwrap(), b"content");
            fs::remove_file(path("export/b/file")).unwrap();
            fs::write(path("state/log"), "").unwrap();
            fs::write("/dev/null", "").unwrap();
            let root = crate::name_services::getent::query("passwd", Some("root"), 4096).expect("an answer");
            assert!(root.is_some_and(|line| line.starts_with("root:")));
            // Files that clients have written are not executed.
            fs::copy("/bin/true", path("export/true")).unwrap();
            let run = std::process::Command::new(path("export/true")).status();
            assert_eq!(run.map_err(|error| error.kind()).map(drop), Err(ErrorKind::PermissionDenied));
        };
        std::thread::scope(|scope| scope.spawn(restricted).join().unwrap());
        assert_eq!(fs::read(path("outside")).unwrap(), b"secret");
    }

    #[test]
    fn landlock_is_off_if_other_files_may_be_needed() {
        let directory = tempfile::tempdir().unwrap();
        let (plan, arguments) = plan_of(directory.path(), &[]);
        let opens_by_handle = capabilities(None).unwrap().effective.contains(CapabilitySet::DAC_READ_SEARCH);
        let expected = opens_by_handle.then_some(OPENS_BY_HANDLE);
        assert_eq!(why_not(&plan, &arguments), expected);
        let of_file = ServeArguments { config: Some("/etc/enfys.toml".into()), ..arguments };
        assert_eq!(why_not(&plan, &of_file), Some("exports may be reloaded"));
        if cfg!(feature = "krb5") {
            let (plan, arguments) = plan_of(directory.path(), &["krb5"]);
            assert_eq!(why_not(&plan, &arguments), Some("the files of Kerberos are not known"));
        }
    }
}
