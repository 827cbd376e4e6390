# test: a mount that names no ports asks the server's port mapper for them
# versions: 3
mkdir -p /run/asked
mount -t nfs -o vers=3,tcp,nolock "$SERVER:$(export_root)/export" /run/asked
grep -q "^[^ ]* /run/asked nfs .*,mountport=$MOUNT_PORT," /proc/mounts || fail "$(grep ' /run/asked ' /proc/mounts)"
echo text >"/run/asked/${D##*/}/file"
same text "$(cat "$D/file")"
umount /run/asked
