//! Calls every operation of the library on a server and checks each outcome; ends with 1 at the first step that fails.
//!
//! `cargo run -p enfys-net --example operations -- URL [FEATURE=ERRNO …]`, where URL names an empty directory in which root may do
//! everything, and chooses the version. The server lacks the named features (`locks`, `xattrs`, `acls`, `set-acls`, `allocate`, `punch-hole`,
//! `seek`, `copy`, `clone`): their operations must fail with this error, for instance `clone=EOPNOTSUPP`.

mod steps;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((url, lacking)) = arguments.split_first() else {
        eprintln!("usage: operations URL [FEATURE=ERRNO …]");
        return ExitCode::from(2);
    };
    match steps::run(url, lacking) {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("operations: {why}");
            ExitCode::FAILURE
        }
    }
}
