//! Exports whose files are on other servers.

use std::path::Path;

use protocol::mount::MountStat;

use crate::client::Client;
use crate::server::{Server, TestDir, run};

#[test]
fn clients_are_told_where_the_files_of_an_export_are() {
    let dir = TestDir::new();
    let here = dir.directory("here");
    std::fs::write(here.join("file"), b"text").unwrap();
    let config = dir.file(
        "enfys.toml",
        &format!(
            "listen = ['127.0.0.1:0']\nstate-dir = '{}'\n[[export]]\npath = '{}'\npseudo = '/data/here'\n\
             [[export]]\npseudo = '/data/there'\nreferral = ['there.example.org:/srv/files', '192.0.2.1:/']\n",
            dir.path("state").display(),
            here.display()
        ),
    );
    let server = Server::start(&dir, &[Path::new("serve"), Path::new("--config"), &config]);
    let url = |version: &str, path: &str| {
        let address = server.address;
        format!("nfs://{address}{path}?version={version}&mountport={}", address.port())
    };
    for version in ["4.0", "4.1", "4.2"] {
        let listed = run(&["ls", &url(version, "/data")]);
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        assert_eq!(
            String::from_utf8_lossy(&listed.stdout),
            "here\n",
            "{version}: a referral cannot be listed here"
        );
        for path in ["/data/there", "/data/there/below/it"] {
            let refused = run(&["ls", &url(version, path)]);
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success(), "{said}");
            assert!(
                said.contains("there.example.org:/srv/files, 192.0.2.1:/ (MOVED)"),
                "{version} {path}: {said}"
            );
        }
    }
    let mut old = Client::connect(server.address);
    assert_eq!(old.mount("/data/there").unwrap_err(), MountStat::NOTSUPP);
    assert!(old.mount("/data/here").is_ok());
    server.stop();
}
