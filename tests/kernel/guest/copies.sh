# test: the server copies by itself, also in the background, and shares extents where its file system can
# versions: 4.2
# exports: sync async
head -c 20000001 /dev/urandom >"$D/source"
"$PROBE" copy-range "$D/source" "$D/copied"
grep -Eq '^[[:space:]]*COPY: [1-9]' /proc/self/mountstats || fail 'the client did not ask for a copy'
cp "$D/source" "$D/again"
remount
same_file "$D/source" "$D/again"
chmod 444 "$D/source"
chmod 777 "$L"; as_user 1234 1234 '' cp "$D/source" "$L/mine"
refused 'Permission denied' as_user 1234 1234 '' cp "$L/mine" "$D/source"
# A longer copy continues after its reply. The client waits for CB_OFFLOAD; the copy is one call.
copies() { awk '/^[[:space:]]*COPY:/ { sum += $2 } END { print sum + 0 }' /proc/self/mountstats; }
head -c 100000001 /dev/urandom >"$D/long"
before=$(copies)
"$PROBE" copy-range "$D/long" "$D/copied"
[ "$(copies)" -le $((before + 2)) ] || fail 'a long copy took many calls'
rm "$D/long" "$D/copied"
if on_host; then
    # A hole stays a hole: nothing is written.
    truncate -s 8G "$D/huge"; printf end >>"$D/huge"
    : >"$D/sparse"; "$PROBE" copy-over "$D/huge" "$D/sparse"
    same end "$(tail -c 3 "$D/sparse")" 'the end of a sparse copy'
    [ "$(du -m "$D/sparse" | cut -f 1)" -lt 16 ] || fail "the copy of a sparse file takes $(du -m "$D/sparse")"
    # A copy ends when the waiting process is killed. Zeros must be written over existing data: so many that the copy is still
    # running when it is killed.
    truncate -s 64G "$D/vast"; truncate -s 65G "$D/part"
    before=$(copies)
    "$PROBE" copy-over "$D/vast" "$D/part" & waiting=$!
    until [ "$(copies)" -gt "$before" ]; do sleep 0.1; done
    kill "$waiting"
    wait "$waiting" && fail 'the copy was over before it could be interrupted'
    # The client does not wait for the reply, which comes when nothing is written any more.
    cancelled() { grep -Eq '^[[:space:]]*OFFLOAD_CANCEL: [1-9]' /proc/self/mountstats; }
    until_true cancelled
    rm "$D/huge" "$D/sparse" "$D/vast" "$D/part"
fi
# A second client: the kernel takes its mount for one of the same server, and sends stateids of the other client.
mount_other
timeout 60 "$PROBE" copy-range "/run/other/$TEST/source" "$D/across" || fail 'a copy between two clients'
umount /run/other
# btrfs; or memory, which copies.
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
    # A file system without shared extents says so, and `cp` copies.
    cp --reflink=auto "$D/again" "$D/third"
    same_file "$D/again" "$D/third"
fi
