# test: byte-range locks and flock between two processes, which the server decides, and in version 4 between two mounts
# versions: 2 3 4.0 4.1 4.2
: >"$D/file"
"$PROBE" locks "$D/file" "$D/file"
"$PROBE" flocks "$D/file" "$D/file"
if [ "${VERSION%.*}" = 4 ]; then
    # The other mount is another client: only the server separates them. In versions 2 and 3 nlm.sh does the same.
    mount_other
    "$PROBE" locks "$D/file" "/run/other/$TEST/file"
    "$PROBE" flocks "$D/file" "/run/other/$TEST/file"
    umount /run/other
fi
