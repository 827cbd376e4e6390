//! `enfys bench setup`: programs that measurements need in addition to this one.

use bench::plan::{BONNIE, FIO, GANESHA, KNFSD, Machine as _, Requirement, SQLITE};
use bench::runner::ThisMachine;
use rustix::fs::{Access, access};

use super::print;

/// Other programs, with their purpose.
const PROGRAMS: [(&str, Requirement); 4] = [
    ("mounted directories as targets", Requirement { name: "mount.nfs", files: &[], packages: "nfs-common" }),
    ("checks of data rates: enfys bench honesty", FIO),
    ("checks of creation, stat and deletion: enfys bench honesty", BONNIE),
    ("the workload database with engine=sqlite3", SQLITE),
];

/// Targets that the bench starts, with their requirements.
const SERVERS: [(&str, &[Requirement]); 2] = [("local:ganesha", GANESHA), ("local:knfsd", KNFSD)];

/// Prints the installed programs, and how to install missing ones.
pub fn run() -> Result<(), String> {
    let mut lines: Vec<String> = SERVERS
        .iter()
        .flat_map(|(target, needs)| needs.iter().map(|need| requirement(target, need)))
        .collect();
    lines.extend(PROGRAMS.iter().map(|(purpose, program)| requirement(purpose, program)));
    lines.push(match access("/dev/net/tun", Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => "found    /dev/net/tun (links: --delay, enfys bench link)".to_owned(),
        Err(error) => format!(
            "missing  /dev/net/tun (links: --delay, enfys bench link): {error}; as root: `modprobe tun`, or start the \
             container with `--device /dev/net/tun`"
        ),
    });
    if !ThisMachine.is_root() {
        lines.push(
            "note     without root: links need user namespaces (`unshare -rn true` must succeed), caches cannot be \
             dropped, and local:ganesha and local:knfsd do not start"
                .to_owned(),
        );
    }
    print(&lines.join("\n"))
}

fn requirement(purpose: &str, need: &Requirement) -> String {
    let name = need.name;
    if need.is_met(&ThisMachine) {
        format!("found    {name} ({purpose})")
    } else {
        format!("missing  {name} ({purpose}): {}", need.remedy())
    }
}
