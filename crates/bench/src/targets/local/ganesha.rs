//! NFS-Ganesha with its VFS back end.
//!
//! Its version 3 does not start without a port mapper. It gets one of its own: the mapper's local socket is in a mount
//! namespace of both, and the mapper's ports are in a network namespace without any connection. Other programs of the machine
//! see neither.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::launch::{Address, EXPORT, Launch};

/// Starts the port mapper, then the server in its place: the shell's process becomes the server's. The mapper ends with it: as it
/// changes its user, which would make the kernel forget that, a shell of its process namespace does so for it.
const SCRIPT: &str = "\
export PATH=$PATH:/usr/sbin:/sbin
mount -t tmpfs run /run || exit 1
setpriv --pdeathsig KILL unshare --net --pid --fork --kill-child /bin/sh -c 'rpcbind -f; :' &
checks=0
until [ -S /run/rpcbind.sock ]; do
    checks=$((checks + 1))
    [ $checks -le 200 ] || { echo 'the port mapper does not start'; exit 1; }
    sleep 0.05
done
exec ganesha.nfsd -F -f \"$1/ganesha.conf\" -L /dev/stderr -p \"$1/ganesha.pid\"
";

/// Returns a configuration with defaults everywhere else, as for a user who exports one directory.
#[must_use]
pub fn configuration(export: &Path, address: Address) -> String {
    let Address { server, mount_port, .. } = address;
    format!(
        "NFS_CORE_PARAM {{ Bind_addr = {}; NFS_Port = {}; MNT_Port = {mount_port}; Protocols = 3,4;
    Mount_Path_Pseudo = true; Enable_NLM = false; Enable_RQUOTA = false; }}
NFSv4 {{ Graceless = true; Minor_Versions = 0,1,2; Delegations = true; }}
LOG {{ Default_Log_Level = WARN; }}
EXPORT {{ Export_Id = 1; Path = \"{}\"; Pseudo = {EXPORT}; Access_Type = RW; Squash = No_Root_Squash;
    SecType = sys; Protocols = 3,4; FSAL {{ Name = VFS; }} }}
",
        server.ip(),
        server.port(),
        export.display()
    )
}

/// Writes the configuration, and returns how the server of `place` is started.
///
/// # Errors
/// Those of files.
pub(super) fn launch(place: &Path, address: Address) -> Result<Launch, String> {
    if place.starts_with("/run") {
        return Err(format!("{}: NFS-Ganesha cannot have its files below /run", place.display()));
    }
    let file = place.join("ganesha.conf");
    fs::write(&file, configuration(&place.join("export"), address))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    let mut arguments: Vec<OsString> = ["--mount", "/bin/sh", "-c", SCRIPT, "sh"].map(OsString::from).into();
    arguments.push(place.into());
    Ok(Launch { program: PathBuf::from("unshare"), arguments })
}
