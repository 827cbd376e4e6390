//! `mount.enfys`: the helper of mount(8) for lines of fstab(5) with the type `enfys`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::MountArguments;
use clap::Parser;

/// Names of this program as helper.
const NAMES: [&str; 2] = ["mount.enfys", "mount.fuse.enfys"];

/// The command line of a helper (mount(8), "External helpers").
#[derive(Debug, Parser)]
#[command(name = "mount.enfys", version, about = "Mounts NFS as a FUSE file system, for mount(8)")]
struct Helper {
    /// nfs://HOST/PATH or HOST:/PATH
    #[arg(value_name = "SOURCE")]
    source: OsString,
    /// Directory to mount on
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Options, separated by commas
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Check the arguments only
    #[arg(short)]
    fake: bool,
    /// Has no effect
    #[arg(short, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Has no effect: unknown options are errors
    #[arg(short)]
    sloppy: bool,
    /// Has no effect: /etc/mtab is not written
    #[arg(short)]
    no_mtab: bool,
    /// Has no effect
    #[arg(short, value_name = "TYPE")]
    type_: Option<String>,
}

/// Returns the arguments of a mount if this process was called as a helper; `Ok(None)` if they must only be checked.
pub fn from_command_line() -> Option<Result<Option<MountArguments>, clap::Error>> {
    let mut arguments = std::env::args_os().peekable();
    let name = Path::new(arguments.peek()?).file_name()?.to_str()?.to_owned();
    NAMES.contains(&name.as_str()).then(|| parse(&mut arguments))
}

fn parse(arguments: &mut dyn Iterator<Item = OsString>) -> Result<Option<MountArguments>, clap::Error> {
    let helper = Helper::try_parse_from(arguments)?;
    let arguments = MountArguments {
        source: helper.source,
        directory: Some(helper.directory),
        options: helper.options,
        foreground: false,
        map_uid: Vec::new(),
        map_gid: Vec::new(),
        cache: None,
        cache_size: None,
        log_file: None,
        log: "info".to_owned(),
        threads: None,
        replace: false,
        in_background: false,
    };
    Ok((!helper.fake).then_some(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_mount_passes() {
        let words = ["mount.enfys", "server:/x", "/mnt", "-sn", "-v", "-o", "rw,noexec", "-t", "enfys"];
        let arguments = parse(&mut words.iter().map(OsString::from)).unwrap().expect("not a check");
        assert_eq!(
            (&*arguments.source, arguments.options),
            ("server:/x".as_ref(), vec!["rw,noexec".to_owned()])
        );
        let words = ["mount.enfys", "server:/x", "/mnt", "-f"];
        assert!(parse(&mut words.iter().map(OsString::from)).unwrap().is_none());
    }
}
