# test: mount, working directory, open files and locks outlive a killed server, and files moved or removed while it was down
# versions: 3 4.0 4.1 4.2
# backends: local
# limit: 240
echo one >"$D/kept"; echo two >"$D/renamed"; echo three >"$D/removed"; mkdir "$D/directory"
exec 3<>"$D/kept" 4<"$D/renamed"
if [ "$VERSION" != 3 ]; then
    # A program of this client holds a lock, and one of another client the next.
    mount_other
    echo locked >"$D/locked"; echo locked >"$D/others"
    exec 5<>"$D/locked" 6<>"/run/other/$TEST/others"
    flock -n 5; flock -n 6
fi
# Nobody else has this lock: asked from the other machine.
others_are_kept_out() {
    refused '' flock -n "/run/other/$TEST/locked" true
    refused '' flock -n "$D/others" true
}
cd "$D/directory"
sync
server kill
host 'mv "$H/renamed" "$H/directory/elsewhere"; rm "$H/removed"'
server start
# The mount, the working directory and the open files are what they were.
if [ "$VERSION" != 3 ]; then
    # Both clients hear of the restart when they ask for something: each finds what it held.
    echo mine >&5
    echo theirs >&6
    others_are_kept_out
fi
touch here
refused 'No such file' cat "$D/removed"
echo more >&3
same two "$(cat <&4)" 'a file renamed while the server was down'
same two "$(cat "$D/directory/elsewhere")"
exec 3>&- 4<&-
same more "$(head -1 "$D/kept")"
[ -e "$D/directory/here" ]
# Twice in a row, with nothing in between.
server restart; server restart
if [ "$VERSION" != 3 ]; then
    echo mine >&5
    echo theirs >&6
    others_are_kept_out
    flock -u 5; flock -u 6
    flock -n "/run/other/$TEST/locked" true
    flock -n "$D/others" true
    exec 5>&- 6>&-
    same 'mine mine' "$(tr '\n' ' ' <"$D/locked" | sed 's/ $//')"
    umount /run/other
fi
same more "$(head -1 "$D/kept")"
cd /
