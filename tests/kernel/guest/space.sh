# test: ENOSPC reaches the program, and everything works once there is room again
# versions: 2 3 4.0 4.1 4.2
# exports: sync async
mount_export /run/full /space
S=/run/full
wrote() { # what dd managed to write of 100 MB, in bytes; fails where dd did not say why it stopped
    LC_ALL=C dd if=/dev/zero of="$S/$1" bs=1M count=100 "${@:2}" 2>"$L/said" && fail "$1: 100 MB into 48"
    grep -q 'No space left on device' "$L/said" || fail "$1: $(cat "$L/said")"
}
wrote buffered conv=fsync
rm "$S/buffered"
wrote direct oflag=direct
[ "$(stat -c %s "$S/direct")" -gt 20000000 ] || fail 'hardly anything was written before the end'
rm "$S/direct"
wrote sync oflag=sync
# Data written before stay, unchanged.
head -c 20000000 "$S/sync" | cmp - <(head -c 20000000 /dev/zero)
refused 'No space left on device' cp /usr/bin/bash "$S/copy"
rm -f "$S/sync" "$S/copy"
cp /usr/bin/bash "$S/copy"
same_file /usr/bin/bash "$S/copy"
# Inodes run out too: the file system has 2,000 of them.
if on_host; then
    mkdir "$S/many"
    LC_ALL=C bash -c 'for n in $(seq 2500); do : >"$1/$n" || exit 1; done' - "$S/many" 2>"$L/said" && fail '2,500 names into 2,000'
    grep -q 'No space left on device' "$L/said" || fail "names: $(head -3 "$L/said")"
    refused 'No space left on device' mkdir "$S/directory"
    refused 'No space left on device' ln -s target "$S/link"
    rm -rf "$S/many"
fi
mkdir "$S/directory"
rm -rf "${S:?}"/*
umount "$S"
