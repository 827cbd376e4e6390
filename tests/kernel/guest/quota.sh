# test: EDQUOT reaches the program, and everything works once there is room again
# versions: 2 3 4.0 4.1 4.2
# exports: sync async
mount_export /run/quota /quota
Q=/run/quota/mine
# A user writes, because quotas of users do not limit the superuser.
mkdir -m 777 "$Q"
user() { as_user 1000 1000 '' "$@"; }
for flags in conv=fsync oflag=direct oflag=sync; do
    LC_ALL=C user dd if=/dev/zero of="$Q/file" bs=1M count=60 "$flags" 2>"$L/said" && fail "$flags: 60 MB into a quota of 32"
    grep -q 'Disk quota exceeded' "$L/said" || fail "$flags: $(cat "$L/said")"
    user rm "$Q/file"
    if on_host; then
        host 'sync "$QUOTA"; btrfs filesystem sync "$QUOTA" 2>/dev/null || btrfs filesystem sync "$QUOTA"'
    fi
done
user cp /usr/bin/bash "$Q/copy"
remount
same_file /usr/bin/bash "$Q/copy"
rm -r "$Q"
umount /run/quota
