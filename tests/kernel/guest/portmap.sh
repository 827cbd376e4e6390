# test: a mount without ports asks the server's port mapper for them, and is listed until it is unmounted
# versions: 2 3
mkdir -p /run/asked
path=$(export_root)/export/${D##*/}
listed() { showmount --no-headers -a "$SERVER" | grep -Fxc "10.99.0.2:$path" || true; }
same 0 "$(listed)" 'mounts of the directory before there is one'
[ "$VERSION" = 3 ] && options=vers=3,tcp,nolock || options=vers=2,proto=tcp,addr=$SERVER,mountproto=tcp,mountvers=1,nolock
mount $(mount_flags) -t nfs -o "$options" "$SERVER:$path" /run/asked
# Of version 2, which the kernel mounts by itself, it does not show the port.
[ "$VERSION" = 2 ] || grep -q "^[^ ]* /run/asked nfs .*,mountport=$MOUNT_PORT," /proc/mounts || fail "$(grep ' /run/asked ' /proc/mounts)"
same 1 "$(listed)" 'mounts of the directory'
showmount --no-headers -d "$SERVER" | grep -Fxq "$path" || fail "no such directory is mounted: $(showmount -d "$SERVER")"
showmount --no-headers -e "$SERVER" | grep -q "^$(export_root)/export " || fail "no such export: $(showmount -e "$SERVER")"
echo text >"/run/asked/file"
same text "$(cat "$D/file")"
umount /run/asked
same 0 "$(listed)" 'mounts of the directory that was unmounted'
