# test: byte-range locks and flock between two processes, and in v4.1 between two mounts
# versions: 3 4.0 4.1 4.2
: >"$D/file"
"$PROBE" locks "$D/file" "$D/file"
"$PROBE" flocks "$D/file" "$D/file"
if [ "$VERSION" != 3 ]; then
    # No local lock knows of both mounts: only the server can keep them apart.
    mount_other
    "$PROBE" locks "$D/file" "/run/other/$TEST/file"
    "$PROBE" flocks "$D/file" "/run/other/$TEST/file"
    umount /run/other
fi
