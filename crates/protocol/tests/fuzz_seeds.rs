//! The fuzz targets' bodies, over the seeds: recorded messages, whole, cut and altered, and inputs that once failed.

#[path = "../../../fuzz/src/lib.rs"]
#[allow(dead_code, unreachable_pub, reason = "the fuzz crate's own library")]
mod bodies;
#[path = "common/golden.rs"]
mod golden;

use std::path::Path;

fn target(name: &str) -> fn(&[u8]) {
    bodies::TARGETS.iter().find(|(target, _)| *target == name).unwrap().1
}

fn recorded() -> Vec<(&'static str, Vec<u8>)> {
    let mut seeds = Vec::new();
    for program in ["nfs3", "nfs4", "mount", "portmap", "rpcbind", "nlm", "nsm", "rquota", "nfsacl"] {
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
    for name in ["records", "headers", "nfs3", "nfs4", "services"] {
        assert!(seeds.iter().filter(|(target, _)| *target == name).count() > 20, "{name} has no seeds");
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

#[test]
fn inputs_that_once_failed() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (name, run) in bodies::TARGETS {
        for seed in seeds.join(name).read_dir().into_iter().flatten() {
            run(&std::fs::read(seed.unwrap().path()).unwrap());
        }
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
