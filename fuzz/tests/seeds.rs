//! The fuzz targets' bodies, over the seeds: recorded messages, whole, cut and altered, and inputs that once failed.

#[path = "../../crates/protocol/tests/common/golden.rs"]
mod golden;

use std::path::Path;

fn target(name: &str) -> fn(&[u8]) {
    bodies::TARGETS.iter().find(|(target, _)| *target == name).unwrap().1
}

fn recorded() -> Vec<(&'static str, Vec<u8>)> {
    let mut seeds = Vec::new();
    for program in ["nfs2", "nfs3", "nfs4", "mount", "portmap", "rpcbind", "nlm", "nsm", "rquota", "nfsacl"] {
        for golden in golden::all(program) {
            assert!(!golden.fields.is_empty() || golden.message.len() >= 20);
            seeds.extend(bodies::seeds(program, &golden.name, &golden.message));
        }
    }
    seeds
}

#[test]
fn recorded_messages() {
    let seeds = recorded();
    // Sequences of calls are no messages.
    for (name, _) in bodies::TARGETS
        .iter()
        .filter(|(name, _)| !["compounds", "nfs2", "nlm", "nsm", "replies", "rquota"].contains(name))
    {
        assert!(seeds.iter().filter(|(target, _)| target == name).count() > 20, "{name} has no seeds");
    }
    for (name, input) in seeds {
        target(name)(&input);
    }
}

/// Each four bytes in turn become a number that lengths and discriminants are not, and each place in turn the end.
#[test]
fn recorded_messages_cut_and_altered() {
    for (name, input) in recorded() {
        let run = target(name);
        for at in (0..input.len().min(600)).step_by(4) {
            run(&input[..at]);
            for value in [0, 1, 2, 255, 0x7fff_ffff, u32::MAX] {
                let mut altered = input.clone();
                let end = altered.len().min(at + 5);
                altered[(at + 1).min(end)..end]
                    .copy_from_slice(&value.to_be_bytes()[..end - (at + 1).min(end)]);
                run(&altered);
            }
        }
    }
}

/// Made by hand, or found by fuzzing: each has a name that says what it shows.
fn kept(target: &str) -> Vec<(String, Vec<u8>)> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let files = seeds.read_dir().unwrap_or_else(|error| panic!("{target}: {error}"));
    files
        .map(|file| file.unwrap())
        .map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap()))
        .collect()
}

#[test]
fn kept_inputs() {
    for (target, run) in bodies::TARGETS {
        let seeds = kept(target);
        assert!(!seeds.is_empty(), "{target} has none");
        for (name, input) in seeds {
            if let Err(panic) = std::panic::catch_unwind(|| run(&input)) {
                eprintln!("{target}/{name} failed");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// The bytes of a sequence of compounds mean something else when anything that they choose from changes: then their names lie.
#[test]
fn sequences_of_compounds_lead_to_what_they_are_named_after() {
    for (name, input) in kept("compounds") {
        let played = sim::compounds::play(&input);
        let shown = match name.as_str() {
            "delegation_granted" => played.delegations > 0,
            "delegation_recalled" => played.recalls > 0,
            "open_of_version_40" => played.opens_40 > 0,
            _ => true,
        };
        assert!(shown, "{name}: {played:?}; cargo run -p enfys-fuzz --bin seeds makes them anew");
    }
}

#[test]
fn every_target_takes_empty_and_short_input() {
    for (_, run) in bodies::TARGETS {
        for length in 0..20 {
            for byte in [0, 1, 0x80, 0xff] {
                run(&vec![byte; length]);
            }
        }
    }
}
