//! Links debug builds at a fixed address: relocations of a binary of this size take 1.5 MB of a server's memory. Release builds
//! keep their random address.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("PROFILE").as_deref() == Ok("debug") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
