//! Builds of C and Go programs on a mount whose server is killed and started again in the middle.

use std::path::Path;
use std::process::Command;

use crate::support::{Mounted, Server, await_that, can_mount, is_full_load, sh, shell};

const VERSIONS: [&str; 4] = ["3", "4.0", "4.1", "4.2"];
/// Versions with a Go build, which compiles the standard library too and takes a minute; with `ENFYS_LOAD=full`, [`VERSIONS`].
const VERSIONS_OF_GO: [&str; 2] = ["3", "4.2"];
/// Source files of the C program, and packages of the Go program.
const PARTS: usize = 24;

/// Returns whether a program exists, and prints that it does not.
fn has(program: &str, argument: &str) -> bool {
    let found = Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: needs {program}");
    }
    found
}

/// Builds on mounts of a server that is killed when `begun` exists, and checks that the program prints `expected`.
fn build(versions: &[&str], source: &str, begun: &str, script: &str, expected: &str) {
    for version in versions {
        // The grace period ends early: the mount is the only client.
        let mut server = Server::with_lease(10);
        let mounted = Mounted::new(&server, version, &[]);
        mounted.sh(source);
        let building = shell(&mounted.path, script).spawn().expect("a shell");
        await_that("the build has begun", || exists(&server.export(), begun));
        server.restart_during(building, version);
        assert_eq!(mounted.sh("./program"), expected, "{version}");
        // The server has what the mount shows.
        mounted.send_all();
        let sums = "find . -type f | sort | xargs sha256sum";
        assert_eq!(mounted.sh(sums), sh(&server.export(), sums), "{version}");
        mounted.end();
    }
}

/// Returns whether a file matches a pattern of the shell.
fn exists(directory: &Path, pattern: &str) -> bool {
    shell(directory, &format!("ls {pattern} > /dev/null 2>&1")).status().expect("a shell").success()
}

#[test]
fn a_c_build_continues_after_a_restart_of_the_server() {
    if !can_mount() || !has("cc", "--version") || !has("make", "--version") {
        return;
    }
    let source = format!(
        "for n in $(seq {PARTS}); do
             {{ echo '#include <stdio.h>'; echo '#include <stdlib.h>'; echo '#include \"all.h\"'
                for f in $(seq 200); do echo \"static int g$f(int x) {{ return x * $f + $n - $n; }}\"; done
                echo \"int part$n(void) {{ return g1($n); }}\"; }} > part$n.c
             echo \"int part$n(void);\" >> all.h
         done
         {{ echo '#include <stdio.h>'; echo '#include \"all.h\"'; echo 'int main(void) {{ int sum = 0;'
            for n in $(seq {PARTS}); do echo \"sum += part$n();\"; done; echo 'printf(\"%d%c\", sum, 10); }}'; }} > main.c
         printf 'program: $(patsubst %%.c,%%.o,$(wildcard *.c))\\n\\tcc -o $@ $^\\n%%.o: %%.c all.h\\n\\tcc -w -O1 -c -o $@ $<\\n' > Makefile"
    );
    let expected = format!("{}\n", (1..=PARTS).sum::<usize>());
    build(&VERSIONS, &source, "part1*.o", "make -s -j2", &expected);
}

#[test]
fn a_go_build_continues_after_a_restart_of_the_server() {
    if !can_mount() || !has("go", "version") {
        return;
    }
    let source = format!(
        "printf 'module example.org/program\\n\\ngo 1.19\\n' > go.mod
         {{ echo 'package main'; echo 'import \"os\"'; echo 'import \"strconv\"'
            for n in $(seq {PARTS}); do echo \"import \\\"example.org/program/part$n\\\"\"; done
            echo 'func main() {{ sum := 0'
            for n in $(seq {PARTS}); do echo \"sum += part$n.Value()\"; done
            echo 'os.Stdout.WriteString(strconv.Itoa(sum) + string(rune(10))) }}'; }} > main.go
         for n in $(seq {PARTS}); do mkdir part$n; printf \"package part$n\\nfunc Value() int {{ return $n }}\\n\" > part$n/part.go; done"
    );
    let expected = format!("{}\n", (1..=PARTS).sum::<usize>());
    // The cache, which has all results of the compiler, is on the mount too.
    let script = "mkdir -p cache tmp; GOCACHE=$PWD/cache GOTMPDIR=$PWD/tmp GOPATH=$PWD/path GOFLAGS=-mod=mod GOTOOLCHAIN=local \
                  CGO_ENABLED=0 go build -p 2 -o program . ";
    let versions: &[&str] = if is_full_load() { &VERSIONS } else { &VERSIONS_OF_GO };
    build(versions, &source, "cache/*/*-d", script, &expected);
}
