# Runs one test in the guest: a fresh mount, a fresh directory, and a check of the kernel's messages.
# shellcheck shell=bash
set -euo pipefail
TEST=$1
# shellcheck source=lib.sh
. "$SCRIPTS/lib.sh"
dmesg --clear
our_mounts() { awk '$3 ~ /^nfs|^fuse/ && $2 ~ "^/run/" { print $2 }' /proc/mounts | sort -r; }
mount_export /run/nfs
mkdir -p "/run/nfs/$TEST" "/run/tmp/$TEST"
D=/run/nfs/$TEST   # the test's directory on the server
L=/run/tmp/$TEST       # one in the guest's own memory
H=$HOST_EXPORT/$TEST # D as the server's machine sees it, for `host`
export D L H
cd "$L"
# Processes or mounts that a failed test leaves behind would make the next one fail.
clear_away() {
    jobs -p | xargs --no-run-if-empty kill -KILL 2>/dev/null || true
    wait
    cd /
    for mounted in $(our_mounts); do umount --lazy "$mounted"; done
}
trap clear_away EXIT
started=$(kernel_complaints)
# With `--set RESTARTS=SECONDS`, the server is killed and started again that often while the test runs.
if [ "$GUEST" = 2 ]; then RESTARTS=; fi
if [ -n "${RESTARTS:-}" ]; then
    (
        while sleep "$RESTARTS" && [ ! -e "$L.ended" ]; do
            server restart >/dev/null
            echo restart >>"$L.restarts"
        done
    ) & restarting=$!
fi
# shellcheck disable=SC1090
. "$TESTS_DIR/$TEST.sh"
cd /
if [ -n "${RESTARTS:-}" ]; then
    touch "$L.ended"
    wait "$restarting" || fail 'the server does not start again'
    [ -e "$L.restarts" ] || fail "the test ends before a restart: --set RESTARTS=$RESTARTS is too long"
    echo "$(wc -l <"$L.restarts") restarts"
fi
sync
for mounted in $(our_mounts); do umount "$mounted"; done
rm -rf "/run/tmp/$TEST" "$L.restarts" "$L.ended"
[ "$(kernel_complaints)" = "$started" ] || { dmesg; fail "the kernel complains of the server"; }
