# test: what a local process changes shows at the client's next open, though the file is delegated; what the client wrote the local process sees
# versions: 4.0 4.1 4.2
# backends: local
# given_back FILES SCRIPT: has a local process do that, and waits until so many files more have been given back.
given_back() {
    local wanted=$(($(operations DELEGRETURN) + $1)) attempt
    host "$2"
    for attempt in $(seq 100); do
        [ "$(operations DELEGRETURN)" -lt "$wanted" ] || return 0
        sleep 0.1
    done
    fail "not given back: $2"
}
# held NAME CONTENT: the client reads it without the server: it has it delegated.
held() {
    same "$2" "$(cat "$D/$1")"
    local opens reads
    opens=$(operations OPEN) reads=$(operations READ)
    same "$2" "$(cat "$D/$1")"
    same "$opens $reads" "$(operations OPEN) $(operations READ)" "OPENs and READs of $1, which is delegated"
}

# Each file is read under a delegation, and then changed beside the server in a way of its own. Of these, the first leaves the size as it
# was: it shows by the change attribute alone.
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
# The next open asks; a stat(2) alone has what the client knew for some seconds more (acregmin), as without delegations.
same 'first mode' "$(cat "$D/mode")"
same 600 "$(stat --format=%a "$D/mode")"
# As editors save.
given_back 1 'echo second >$H/.new && mv $H/.new $H/replaced'
same second "$(cat "$D/replaced")"
given_back 1 'rm $H/removed'
refused 'No such file' cat "$D/removed"

# What is open meanwhile goes on, and shows the change when it is opened again.
host 'echo first >$H/open'
exec 5<"$D/open"
held open first
given_back 1 'printf FIRST | dd of=$H/open conv=notrunc status=none'
same FIRST "$(cat "$D/open")"
exec 5<&-

# What the client itself has changed beside its delegation for reading it has as it is, and no local process's change for its own.
host 'echo first own >$H/own'
held own 'first own'
printf FIRST | dd of="$D/own" conv=notrunc status=none
same 'FIRST own' "$(cat "$D/own")"
given_back 1 'printf OWN | dd of=$H/own seek=6 bs=1 conv=notrunc status=none'
same 'FIRST OWN' "$(cat "$D/own")"

# What the client may write it hands in before a local process's second look, and sees what that adds.
for name in read written; do echo "mine $name" >"$D/$name"; held $name "mine $name"; done
given_back 1 'cat $H/read >/dev/null'
same 'mine read' "$(host 'cat $H/read')"
given_back 1 'printf MINE | dd of=$H/written conv=notrunc status=none'
same 'MINE written' "$(cat "$D/written")"
