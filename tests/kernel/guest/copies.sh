# test: the server copies by itself, and shares what its file system can share
# versions: 4.2
head -c 20000001 /dev/urandom >"$D/source"
"$PROBE" copy-range "$D/source" "$D/copied"
grep -Eq '^[[:space:]]*COPY: [1-9]' /proc/self/mountstats || fail 'the client did not ask for a copy'
cp "$D/source" "$D/again"
remount
same_file "$D/source" "$D/again"
chmod 444 "$D/source"
chmod 777 "$L"; as_user 1234 1234 '' cp "$D/source" "$L/mine"
refused 'Permission denied' as_user 1234 1234 '' cp "$L/mine" "$D/source"
# A second client: the kernel takes its mount for one of the same server, and offers stateids that are not the first's.
mount_other
timeout 60 "$PROBE" copy-range "/run/other/$TEST/source" "$D/across" || fail 'a copy between two clients'
umount /run/other
# btrfs, or memory, which copies.
if on_host; then
    mount_export /run/quota /quota
    Q=/run/quota
else
    Q=$D
fi
head -c 5000001 /dev/urandom >"$Q/source"
cp --reflink=always "$Q/source" "$Q/clone"
same_file "$Q/source" "$Q/clone"
printf changed | dd of="$Q/clone" conv=notrunc status=none
cmp -s "$Q/source" "$Q/clone" && fail 'a change of one is seen in the other'
grep -Eq '^[[:space:]]*CLONE: [1-9]' /proc/self/mountstats || fail 'the client did not ask for a clone'
rm "$Q/source" "$Q/clone"
if on_host; then
    umount "$Q"
    # A file system that cannot share says so, and `cp` copies.
    cp --reflink=auto "$D/again" "$D/third"
    same_file "$D/again" "$D/third"
fi
