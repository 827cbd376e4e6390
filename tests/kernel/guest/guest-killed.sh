# test: the lock of a killed guest is kept until the guest is booted again and its status monitor notifies the server (SM_NOTIFY)
# versions: 2 3
# backends: local
# limit: 120
# takes: 15
said() { [ "$(cat "$D/step")" = "$1" ]; }
if grep -q ' /run/nfs nfs .*nolock' /proc/mounts; then fail 'the locks of this mount are local'; fi
if [ "$GUEST" = 2 ]; then
    if said first; then
        exec 5<>"$D/lock"
        flock -n 5
        echo held >"$D/step"
        sleep infinity
    fi
    echo again >"$D/step"
    until_true said notify
    # It reads what the monitor recorded before the guest was killed.
    sm-notify
    until_true said granted
    flock -n "$D/lock" true
    return 0
fi
: >"$D/lock"
echo first >"$D/step"
guest start
until_true said held
refused '' flock -n "$D/lock" true
flock "$D/lock" touch "$L/granted" & waiter=$!
guest kill
# Neither the death of its holder nor that machine's start frees the lock, but its notification.
sleep 2
[ ! -e "$L/granted" ] || fail 'the lock of a guest that does not run was given'
guest start
until_true said again
refused '' flock -n "$D/lock" true
[ ! -e "$L/granted" ] || fail 'the lock was given before the notification'
echo notify >"$D/step"
wait "$waiter"
[ -e "$L/granted" ] || fail 'the waiter has not run'
echo granted >"$D/step"
guest wait
