# test: a local process's changes of a delegated file show at the client's next open, and it sees the client's writes
# versions: 4.0 4.1 4.2
# backends: local
# takes: 25
# given_back FILES SCRIPT: a local process runs SCRIPT; waits until so many more delegations have been returned.
given_back() {
    local wanted=$(($(operations DELEGRETURN) + $1)) attempt
    host "$2"
    for attempt in $(seq 100); do
        [ "$(operations DELEGRETURN)" -lt "$wanted" ] || return 0
        sleep 0.1
    done
    fail "not given back: $2"
}
# held NAME CONTENT: the client reads it without the server, under a delegation.
held() {
    same "$2" "$(cat "$D/$1")"
    local opens reads
    opens=$(operations OPEN) reads=$(operations READ)
    same "$2" "$(cat "$D/$1")"
    same "$opens $reads" "$(operations OPEN) $(operations READ)" "OPENs and READs of $1, which is delegated"
}

# Each file is read under a delegation, and then changed by a local process in a different way. The first change leaves the size
# unchanged, so only the change attribute shows it.
host 'for name in warm same longer shorter mode replaced removed; do echo "first $name" >$H/$name; done'
cat "$D/warm" >/dev/null # version 4.0 delegates nothing to an owner whose first OPEN is to be confirmed
for name in same longer shorter mode replaced removed; do held $name "first $name"; done
given_back 1 'printf FIRST | dd of=$H/same conv=notrunc status=none'
same 'FIRST same' "$(cat "$D/same")"
given_back 1 'echo second >>$H/longer'
same 'first longer second' "$(paste -sd' ' "$D/longer")"
same 20 "$(stat --format=%s "$D/longer")"
given_back 1 ': >$H/shorter'
same '' "$(cat "$D/shorter")"
same 0 "$(stat --format=%s "$D/shorter")"
given_back 1 'chmod 600 $H/mode'
# The next open asks the server; stat(2) alone may show cached attributes for some seconds (acregmin), as without delegations.
same 'first mode' "$(cat "$D/mode")"
same 600 "$(stat --format=%a "$D/mode")"
# As editors save.
given_back 1 'echo second >$H/.new && mv $H/.new $H/replaced'
same second "$(cat "$D/replaced")"
given_back 1 'rm $H/removed'
refused 'No such file' cat "$D/removed"

# A file that is open meanwhile stays usable, and shows the change when it is opened again.
host 'echo first >$H/open'
exec 5<"$D/open"
held open first
given_back 1 'printf FIRST | dd of=$H/open conv=notrunc status=none'
same FIRST "$(cat "$D/open")"
exec 5<&-

# The client's own changes under a read delegation stay as they are, and it does not take a local process's change for its own.
host 'echo first own >$H/own'
held own 'first own'
printf FIRST | dd of="$D/own" conv=notrunc status=none
same 'FIRST own' "$(cat "$D/own")"
given_back 1 'printf OWN | dd of=$H/own seek=6 bs=1 conv=notrunc status=none'
same 'FIRST OWN' "$(cat "$D/own")"

# Under a write delegation the client flushes its data before a local process's second look, and sees what that process adds.
for name in read written; do echo "mine $name" >"$D/$name"; held $name "mine $name"; done
given_back 1 'cat $H/read >/dev/null'
same 'mine read' "$(host 'cat $H/read')"
given_back 1 'printf MINE | dd of=$H/written conv=notrunc status=none'
same 'MINE written' "$(cat "$D/written")"
