# test: a program that waits for another client's lock is notified once when it is free (CB_NOTIFY_LOCK); readers are notified together
# versions: 4.1 4.2
of_server() { # NAME: what `enfys status` says of all clients together
    of_client 10.99.0.2 sum opens >"$L/none"
    sqlite3 :memory: "SELECT readfile('$L/status.json') ->> '\$.status.totals.$1'"
}
answers() { # FILE COUNT: waits until a program has answered so often; its last answer
    for _ in $(seq 300); do [ "$(wc -l <"$1")" -lt "$2" ] || break; sleep 0.2; done
    same "$2" "$(wc -l <"$1")" "answers in $1"
    tail -1 "$1"
}
waiting() { # COUNT: until the server knows of as many that wait
    [ -n "$ENFYS" ] || { sleep 1; return; }
    for _ in $(seq 300); do [ "$(of_server locks_waiting)" != "$1" ] || return 0; sleep 0.2; done
    same "$1" "$(of_server locks_waiting)" 'those who wait'
}
mount_other
: >"$D/lock"
holder() { # NAME DIRECTORY FD: a program that locks as it is told over a descriptor
    mkfifo "$L/$1.in"
    "$PROBE" hold "$2/lock" <"$L/$1.in" >"$L/$1.out" 5>&- 6>&- 7>&- & # no other's input
    eval "exec $3>'$L/$1.in'"
}
holder here "$D" 5
holder there "/run/other/$TEST" 6
there=$!
holder beside "/run/other/$TEST" 7
beside=$!
echo 'lock write 0 END' >&5
same ok "$(answers "$L/here.out" 1)"
called() { # COUNT: how many were called since then
    [ -z "$ENFYS" ] || same "$1" $(($(of_server locks_notified) - before)) 'calls to those who wait'
}
[ -z "$ENFYS" ] || before=$(of_server locks_notified)

# One waiter: it asks once more when it is notified, and gets the lock.
echo 'wait write 0 10' >&6
waiting 1
called 0
asked=$(operations LOCK /run/other)
echo 'lock unlock 0 END' >&5
same ok "$(answers "$L/here.out" 2)"
same ok "$(answers "$L/there.out" 1)" 'the lock that was waited for'
same 1 $(($(operations LOCK /run/other) - asked)) 'LOCKs behind the first'
called 1
waiting 0

# The end of a program frees its locks as LOCKU does; all waiting readers are notified.
echo 'lock unlock 0 END' >&6
same ok "$(answers "$L/there.out" 2)"
echo 'lock write 0 END' >&5
same ok "$(answers "$L/here.out" 3)"
echo 'wait read 0 10' >&6
echo 'wait read 5 20' >&7
waiting 2
exec 5>&-
same ok "$(answers "$L/there.out" 3)" 'a lock to read'
same ok "$(answers "$L/beside.out" 1)" 'another lock to read'
called 3
waiting 0

# A waiting program is killed, and its client keeps the file open for reading only: that open permits no write lock.
exec 7>&-
wait "$beside"
echo 'lock unlock 0 END' >&6
same ok "$(answers "$L/there.out" 4)"
holder again "$D" 5
echo 'lock write 0 END' >&5
same ok "$(answers "$L/again.out" 1)"
exec 8<"/run/other/$TEST/lock"
downgraded=$(operations OPEN_DOWNGRADE /run/other)
echo 'wait write 0 10' >&6
waiting 1
kill -KILL "$there"
waiting 0
same 1 $(($(operations OPEN_DOWNGRADE /run/other) - downgraded)) 'opens reduced to reading'
exec 5>&- 6>&- 8<&-
wait
umount /run/other
