# Runs one test in the guest: a fresh mount, a fresh directory, and a look at what the kernel had to say.
# shellcheck shell=bash
set -euo pipefail
TEST=$1
# shellcheck source=lib.sh
. "$SCRIPTS/lib.sh"
dmesg --clear
mount_export /run/nfs
mkdir -p "/run/nfs/$TEST" "/run/tmp/$TEST"
D=/run/nfs/$TEST   # the test's directory on the server
L=/run/tmp/$TEST       # one in the guest's own memory
H=$HOST_EXPORT/$TEST # D as the server's machine sees it, for `host`
export D L H
cd "$L"
started=$(kernel_complaints)
# shellcheck disable=SC1090
. "$TESTS_DIR/$TEST.sh"
cd /
sync
for mounted in $(awk '$3 ~ /^nfs/ && $2 ~ "^/run/" { print $2 }' /proc/mounts | sort -r); do umount "$mounted"; done
rm -rf "/run/tmp/$TEST"
[ "$(kernel_complaints)" = "$started" ] || { dmesg; fail "the kernel complains of the server"; }
