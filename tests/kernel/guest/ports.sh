# test: another machine's users, who cannot send from ports below 1024, are refused; its root may mount
# versions: 2 3 4.0 4.1 4.2
[ -n "$ENFYS" ] || exit 0
mkdir -p /run/ports
# A separate client, so that it shares no connection with the mounts of other tests.
stranger() {
    unshare --uts bash -c 'hostname stranger && exec nsenter --net=/run/netns/other "$@"' - \
        mount $(mount_flags) -t nfs -o "$(mount_options nolock),$1" "$SERVER:/export" /run/ports
}
# mount.nfs does not know version 2, and mount(8) has other words.
refused mount stranger noresvport
stranger resvport
ls /run/ports >/dev/null
umount /run/ports
# A user's own program, without the kernel's client.
url="nfs://$SERVER/export?version=${VERSION%.*}&nfsport=$PORT&mountport=$MOUNT_PORT"
case $VERSION in
3 | 4.0)
    nfs-ls "$url" >/dev/null || fail "root's program is refused"
    if as_user 1234 1234 '' nfs-ls "$url" &>"$L/refusal"; then fail "a user's program got in"; fi
    ;;
esac
