mod starvation;

use super::*;

#[test]
fn no_object_shares_its_lock_with_another() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let top = directory.path().join("export");
    std::fs::create_dir(&top).expect("directory");
    let config = crate::Config {
        state_directory: Some(directory.path().join("state")),
        ..crate::Config::new(top.clone())
    };
    let volume = crate::probe::open(&config).expect("volume");
    let objects: Vec<_> = (0..600)
        .map(|number| {
            let name = format!("f{number}");
            std::fs::write(top.join(&name), b"").expect("written");
            let name = crate::name::Name::new(name.as_bytes()).expect("a name");
            volume.find(&volume.root, &name).expect("object")
        })
        .collect();
    // In place, so that a lock that is held already is an error and not a deadlock.
    let section = InPlace::begin(0);
    let locks: Result<Vec<_>> =
        objects.iter().chain([&volume.root]).map(|object| volume.lock(object)).collect();
    assert_eq!(locks.map(|locks| locks.len()), Ok(601));
    assert!(section.end());
}
