# test: mount, working directory, open files, and locks of writing programs survive a killed server; so do files moved or removed while it was down
# versions: 2 3 4.0 4.1 4.2
# exports: sync async
# backends: local
# limit: 600
echo one >"$D/kept"; echo two >"$D/renamed"; echo three >"$D/removed"; mkdir "$D/directory"
exec 3<>"$D/kept" 4<"$D/renamed"
if [ "${VERSION%.*}" -ge 4 ]; then
    # A program of this client holds a lock, and one of another client the next.
    mount_other
    echo locked >"$D/locked"; echo locked >"$D/others"
    exec 5<>"$D/locked" 6<>"/run/other/$TEST/others"
    flock -n 5; flock -n 6
fi
# Nobody else has this lock: tested from the other machine.
others_are_kept_out() {
    refused '' flock -n "/run/other/$TEST/locked" true
    refused '' flock -n "$D/others" true
}
# Programs that write all the time, each under a lock of its file; and one that tests these locks from the other machine.
begin_to_write() {
    local name number
    writers=()
    for number in 1 2 3; do
        "$PROBE" locked-writes "$D/writer$number" "$L/enough" & writers+=($!)
        "$PROBE" locked-writes "/run/other/$TEST/distant$number" "$L/enough" & writers+=($!)
    done
    for name in writer{1,2,3} distant{1,2,3}; do
        for _ in $(seq 300); do [ ! -s "$D/$name" ] || break; sleep 0.2; done
        [ -s "$D/$name" ] || fail "$name does not begin"
    done
    ask_for_locks & asker=$!
}
ask_for_locks() {
    local asked=0 number
    until [ -e "$L/asked" ] && [ $asked -ge 6 ]; do
        for number in 1 2 3; do
            same busy "$(echo 'lock write 0 END' | "$PROBE" hold "/run/other/$TEST/writer$number")" "lock $number"
            same busy "$(echo 'lock write 0 END' | "$PROBE" hold "$D/distant$number")" "distant lock $number"
            asked=$((asked + 1))
        done
        sleep 0.2
    done
}
# A writer holds its lock until nobody tests it any more.
end_writing() {
    local name writer
    touch "$L/asked"
    wait "$asker" || fail 'somebody else was given a lock that is held'
    touch "$L/enough"
    for writer in "${writers[@]}"; do wait "$writer" || fail 'a writer noticed'; done
    # Closing does not wait for the write if the file is delegated.
    sync
    for name in writer{1,2,3} distant{1,2,3}; do
        same "$(sha256sum <"$D/$name")" "$(host "sha256sum <\"\$H/$name\"")" "$name on the server's disk"
    done
}
# Locks of version 3 are local to the client: `crash` has programs that write there.
[ "${VERSION%.*}" -lt 4 ] || begin_to_write
cd "$D/directory"
server kill
host 'mv "$H/renamed" "$H/directory/elsewhere"; rm "$H/removed"'
server start
# The mount, the working directory and the open files are unchanged.
if [ "${VERSION%.*}" -ge 4 ]; then
    # Both clients learn of the restart with their next request: each has its state.
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
# Twice in a row, without a request in between.
server restart; server restart
if [ "${VERSION%.*}" -ge 4 ]; then
    echo mine >&5
    echo theirs >&6
    others_are_kept_out
    end_writing
    flock -u 5; flock -u 6
    flock -n "/run/other/$TEST/locked" true
    flock -n "$D/others" true
    exec 5>&- 6>&-
    same 'mine mine' "$(tr '\n' ' ' <"$D/locked" | sed 's/ $//')"
    umount /run/other
fi
same more "$(head -1 "$D/kept")"
cd /
