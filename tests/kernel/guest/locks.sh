# test: byte-range locks and flock between two processes, and in v4.1 between two mounts
# versions: 3 4.0 4.1 4.2
: >"$D/file"
"$PROBE" locks "$D/file" "$D/file"
"$PROBE" flocks "$D/file" "$D/file"
if [ "$VERSION" != 3 ]; then
    # Local locks do not see the other mount: only the server separates them.
    mount_other
    "$PROBE" locks "$D/file" "/run/other/$TEST/file"
    "$PROBE" flocks "$D/file" "/run/other/$TEST/file"
    umount /run/other
fi
