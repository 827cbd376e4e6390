//! Errors that prevent a start: one line that names the cause, and a failure exit status.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use crate::server::{ENFYS, Server, TestDir, mode, refusal, run, with};

/// Runs the binary in new user and network namespaces, without root's rights over other users' files; `None` if the system does not
/// allow that.
fn powerless(arguments: &[String]) -> Option<Output> {
    let unshare = |program: &str, arguments: &[String]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--net", "--", program]).args(arguments).output()
    };
    match unshare("true", &[]) {
        Ok(output) if output.status.success() => Some(unshare(ENFYS, arguments).expect("unshare ran before")),
        _ => {
            println!("skipped: no user namespaces, so that rights cannot be dropped");
            None
        }
    }
}

#[test]
fn nothing_to_serve() {
    assert_eq!(
        refusal(&run(&["serve"])),
        "nothing to serve: give a directory, --memory, or a --config with an [[export]]"
    );
}

#[test]
fn a_memory_size_is_not_a_directory() {
    let expected = "--memory takes its size after `=`: write `--memory=64MiB`";
    assert_eq!(refusal(&run(&["serve", "--memory", "64MiB"])), expected);
    let of_directory = refusal(&run(&["serve", "--memory", "/srv"]));
    assert!(of_directory.starts_with("--memory serves no directory: remove `/srv`"), "{of_directory}");
}

#[test]
fn a_port_in_use_is_named() {
    let dir = TestDir::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert_eq!(
        refusal(&run(&["serve", "--memory", "--listen", &address])),
        format!("cannot listen on {address}: the port is in use: give another with --listen")
    );
    let arguments = with(&dir, &["--memory".as_ref(), "--metrics".as_ref(), address.as_ref()]);
    assert_eq!(refusal(&run(&arguments)), format!("metrics on {address}: Address already in use"));
}

#[test]
fn failing_settings_are_named_with_their_line() {
    let dir = TestDir::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error_of = |text: &str| {
        let file = dir.file("enfys.toml", &format!("{text}\n[[export]]\nmemory = true\n"));
        let output = refusal(&run(&["serve".as_ref(), "--config".as_ref(), file.as_path()]));
        output.replace(&file.display().to_string(), "FILE")
    };
    assert_eq!(
        error_of(&format!("\nlisten = [{port}]")),
        format!(
            "FILE:2: `listen`: cannot listen on 127.0.0.1:{port}: the port is in use: give another with --listen"
        )
    );
    assert_eq!(
        error_of(&format!("listen = [0]\nmetrics = 'localhost:{port}'")),
        format!("FILE:2: `metrics`: metrics on 127.0.0.1:{port}: Address already in use")
    );
    let unknown = error_of("listen = ['no-such-host.invalid:2049']");
    assert!(unknown.starts_with("FILE:1: `listen`: no-such-host.invalid:2049: no address of"), "{unknown}");
    let socket = dir.path("missing/socket");
    let socket = error_of(&format!("listen = [0]\n[control]\nsocket = '{}'", socket.display()));
    assert!(socket.starts_with("FILE:3: `socket` in [control]: control socket "), "{socket}");
    let state = dir.file("state", "");
    let state = error_of(&format!("state-dir = '{}'\nlisten = [0]", state.display()));
    assert!(state.starts_with("FILE:1: `state-dir`: state directory "), "{state}");
    // An error of the command line is not attributed to the file.
    let file = dir.file("enfys.toml", "listen = [0]\n[[export]]\nmemory = true\n").display().to_string();
    let output = run(&["serve", "--config", &file, "--listen", &port.to_string()]);
    assert!(refusal(&output).starts_with(&format!("cannot listen on 127.0.0.1:{port}: ")));
}

#[test]
fn a_privileged_port_needs_rights() {
    let arguments = ["serve", "--memory", "--listen", "0.0.0.0:111"].map(String::from);
    let Some(output) = powerless(&arguments) else { return };
    assert_eq!(
        refusal(&output),
        "cannot listen on 0.0.0.0:111: ports below 1024 need root or CAP_NET_BIND_SERVICE"
    );
}

#[test]
fn an_unreadable_directory_is_named() {
    let dir = TestDir::new();
    let missing = dir.path("missing");
    let output = refusal(&run(&with(&dir, &[&missing])));
    assert_eq!(output, format!("export /export: {}: No such file or directory", missing.display()));
    let file = dir.file("file", "");
    let output = refusal(&run(&with(&dir, &[&file])));
    assert_eq!(output, format!("export /export: {}: not a directory", file.display()));
    let closed = dir.directory("closed");
    std::fs::set_permissions(&closed, mode(0)).unwrap();
    let output = powerless(&with(&dir, &[&closed]));
    std::fs::set_permissions(&closed, mode(0o700)).unwrap();
    let Some(output) = output else { return };
    assert_eq!(refusal(&output), format!("export /export: {}: Permission denied", closed.display()));
}

#[test]
fn conflicting_exports_are_named() {
    let dir = TestDir::new();
    let (a, b) = (dir.directory("a"), dir.directory("b"));
    let error_of = |more: &[&Path]| refusal(&run(&with(&dir, more)));
    let as_path = |path: &Path, pseudo: &str| format!("{}:{pseudo}", path.display());
    assert!(error_of(&[&a, &b]).starts_with("export /export: another export has this path"));
    let overlapping = error_of(&[as_path(&a, "/x").as_ref(), as_path(&b, "/x/y").as_ref()]);
    assert!(overlapping.starts_with("export /x/y: "), "{overlapping}");
    let twice = error_of(&[as_path(&a, "/x").as_ref(), as_path(&dir.path("b/../a"), "/y").as_ref()]);
    assert_eq!(twice, format!("export /y: {}/../a is already exported as /x", b.display()));
    let wrong = error_of(&[as_path(&a, "/x/../y").as_ref()]);
    assert!(wrong.starts_with("export /x/../y: ") && wrong.contains("`..`"), "{wrong}");
}

#[test]
fn an_export_inside_another_is_a_warning() {
    let dir = TestDir::new();
    let (outer, inner) = (dir.directory("outer"), dir.directory("outer/inner"));
    let config = format!(
        "state-dir = '{}'\n[[export]]\npath = '{}'\npseudo = '/inner'\n[[export]]\npath = '{}'\npseudo = '/outer'\n",
        dir.path("state").display(),
        inner.display(),
        outer.display()
    );
    let file = dir.file("enfys.toml", &config);
    let output = run(&["check-config".as_ref(), file.as_path()]);
    assert!(output.status.success());
    let output = String::from_utf8(output.stdout).unwrap();
    let warning = "# warning: /inner is inside /outer: a lock taken through one does not exclude locks through the other";
    assert_eq!(output.lines().last(), Some(warning));
}

#[test]
fn an_export_inside_the_state_directory_is_refused() {
    let dir = TestDir::new();
    let state = dir.directory("state");
    std::fs::set_permissions(&state, mode(0o700)).unwrap();
    let inside = dir.directory("state/export");
    for export in [&state, &inside] {
        let output = refusal(&run(&with(&dir, &[export])));
        let expected = format!("export /export: it is in the state directory {}", state.display());
        assert!(output.starts_with(&expected), "{output}");
    }
}

#[test]
fn an_unusable_state_directory_is_named() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let state = dir.directory("state");
    std::fs::set_permissions(&state, mode(0o500)).unwrap();
    let output = powerless(&with(&dir, &[&export]));
    std::fs::set_permissions(&state, mode(0o700)).unwrap();
    if let Some(output) = output {
        assert_eq!(refusal(&output), format!("state directory {}: Permission denied", state.display()));
    }
    std::fs::write(state.join("handle.key"), "short").unwrap();
    std::fs::set_permissions(state.join("handle.key"), mode(0o600)).unwrap();
    let output = refusal(&run(&with(&dir, &[&export])));
    assert!(output.starts_with(&format!("{}: damaged: ", state.join("handle.key").display())), "{output}");
}

// Otherwise, its owner could read or replace the key of file handles.
#[test]
fn a_state_directory_open_to_others_is_refused() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let state = dir.directory("state");
    let output = refusal(&run(&with(&dir, &[&export])));
    let shown = state.display();
    assert!(
        output.starts_with(&format!("state directory {shown}: other users have access (mode 0777)")),
        "{output}"
    );
    assert!(output.contains(&format!("run `chmod 700 {shown}`")), "{output}");
    std::fs::set_permissions(&state, mode(0o700)).unwrap();
    let elsewhere = dir.file("elsewhere", "sixteen bytes ok");
    std::fs::set_permissions(&elsewhere, mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&elsewhere, state.join("handle.key")).unwrap();
    let output = refusal(&run(&with(&dir, &[&export])));
    assert!(
        output.starts_with(&format!("{}: it is a symbolic link", state.join("handle.key").display())),
        "{output}"
    );
    std::fs::remove_file(state.join("handle.key")).unwrap();
    if std::os::unix::fs::chown(&state, Some(4711), None).is_ok() {
        let output = refusal(&run(&with(&dir, &[&export])));
        assert!(output.starts_with(&format!("state directory {shown}: it belongs to user 4711")), "{output}");
    }
}

#[test]
fn two_servers_cannot_share_a_state_directory() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let first = Server::start(&dir, &with(&dir, &[&export]));
    let output = refusal(&run(&with(&dir, &[&export])));
    assert!(output.contains("another server uses it; give each its own with --state-dir"), "{output}");
    first.kill();
    Server::start(&dir, &with(&dir, &[&export])).stop();
}

#[test]
fn an_unknown_key_is_named_with_file_and_line() {
    let dir = TestDir::new();
    let file = dir.file("enfys.toml", "[limits]\nlease-seconds = 30\nconnektions = 5\n");
    let file = file.display().to_string();
    for arguments in [vec!["serve", "--config", &file], vec!["check-config", &file]] {
        let output = refusal(&run(&arguments));
        let expected =
            format!("{file}:3: unknown key `connektions` (did you mean `connections`?), expected one of");
        assert!(output.starts_with(&expected), "{output}");
    }
    let missing = dir.path("missing.toml");
    let output = refusal(&run(&["check-config".as_ref(), missing.as_path()]));
    assert_eq!(output, format!("{}: No such file or directory", missing.display()));
}

#[test]
fn check_config_finds_what_a_start_would() {
    let dir = TestDir::new();
    let config = format!(
        "state-dir = '{}'\n\n[[export]]\npath = '{}'\n",
        dir.path("state").display(),
        dir.path("missing").display()
    );
    let file = dir.file("enfys.toml", &config);
    let output = refusal(&run(&["check-config".as_ref(), file.as_path()]));
    let expected = format!(
        "{}:4: export /export: `path`: {}: No such file or directory",
        file.display(),
        dir.path("missing").display()
    );
    assert_eq!(output, expected);
    let output = refusal(&run(&["serve".as_ref(), "--config".as_ref(), file.as_path()]));
    assert_eq!(output, expected);
    dir.directory("missing");
    let output = run(&["check-config".as_ref(), file.as_path()]);
    assert!(output.status.success());
    let output = String::from_utf8(output.stdout).unwrap();
    let expected = format!(
        "\n# serves {} (sync) as /export: read-write, root squashed, for any client that reaches it\n",
        dir.path("missing").display()
    );
    assert!(output.ends_with(&expected), "{output}");
    assert!(!dir.path("state").exists(), "a check creates nothing");
}
