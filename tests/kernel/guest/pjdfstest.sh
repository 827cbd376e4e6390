# test: pjdfstest, a foreign suite of POSIX system calls, except for the failures that expected/pjdfstest explains
# versions: 3 4.0 4.1 4.2
# limit: 600
# takes: 15
expected=$(expected_failures pjdfstest)
configuration() { # whether file systems may be mounted anew, read-only
    cat <<TOML
[features]
secondary_fs = "$L"
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
# Seconds between two changes whose times must differ: longer than a clock tick of any kernel.
naptime = 0.02
allow_remount = $1
expected_failures = [$(sed 's/.*/"&",/' <<<"$expected")]

[dummy_auth]
# Users that every Debian system has.
entries = [["daemon", "daemon"], ["games", "games"]]
TOML
}
# These run first: a failed case leaves its files open, and a mount with open files cannot become read-only.
# Enfys's mount cannot become read-only.
if [ "${MOUNT:-}" != enfys ]; then
    configuration true >"$L/remount.toml"
    "$PJDFSTEST" -c "$L/remount.toml" -p "$D" erofs
fi
configuration false >"$L/pjdfstest.toml"
"$PJDFSTEST" -c "$L/pjdfstest.toml" -p "$D" | tee "$L/results"
# Left out: the 13 of the first run, and one for file systems that report the maximum number of links.
same 14 "$(grep -c ' skipped$' "$L/results")" 'cases left out'
# A case that is expected to fail and passes has failed the run by now; one that does not exist has not.
same "$(wc -l <<<"$expected")" "$(grep -c ' failed as expected$' "$L/results")" 'expected failures'
