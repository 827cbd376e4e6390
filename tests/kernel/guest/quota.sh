# test: EDQUOT reaches the program, and nothing is wrong once there is room again
# backends: local
mount_export /run/quota /quota
Q=/run/quota
for flags in conv=fsync oflag=direct oflag=sync; do
    LC_ALL=C dd if=/dev/zero of="$Q/file" bs=1M count=60 "$flags" 2>"$L/said" && fail "$flags: 60 MB into a quota of 32"
    grep -q 'Disk quota exceeded' "$L/said" || fail "$flags: $(cat "$L/said")"
    rm "$Q/file"
    host 'sync "$QUOTA"; btrfs filesystem sync "$QUOTA" 2>/dev/null || btrfs filesystem sync "$QUOTA"'
done
cp /usr/bin/bash "$Q/copy"
remount
same_file /usr/bin/bash "$Q/copy"
rm "$Q/copy"
umount "$Q"
