# test: a directory that is listed repeatedly shows changes by this client, another one and a local process at once
# versions: 3 4.1
# backends: local
# limit: 300
# takes: 30
mkdir "$D/kept" "$D/elsewhere"
for n in $(seq 200); do echo "$n" >"$D/kept/$n"; done
mkdir "$D/kept/below"
ln "$D/kept/7" "$D/elsewhere/seven"
# An entry that nobody holds a delegation of, or lists.
ln -s nowhere "$D/kept/link"
sleep 1 # until the times of all this are past what the file system's clock tells apart
append() { echo "$1" >>"$2"; }
mount_other
OTHER=/run/other/$TEST

# Prints the name, kind, size, mode, links and time of the last content change of each entry.
ENTRIES="-mindepth 1 -printf '%P %y %s %m %n %T@\n' | LC_ALL=C sort"
# Prints how often the client has asked for a listing: READDIRPLUS is version 3's.
asked() { { operations READDIR; operations READDIRPLUS; } | awk '{ asked += $1 } END { print asked }'; }
# told: lists the directory without the client's cache.
told() {
    echo 3 >/proc/sys/vm/drop_caches
    eval "find '$D/kept' $ENTRIES" >"$L/told"
}
# Whether the server watches the directory's entries, so that the next listing may come from the cache.
is_watched() {
    host 'line="^fanotify ino:$(printf %x "$(stat --format=%i "$H/kept/link")") "
        for server in $(pgrep -x enfys); do ! grep -qs "$line" "/proc/$server/fdinfo/"* || exit 0; done
        exit 1'
}
# Lists until the directory is watched, and some times more. The watch may end meanwhile: the server closes written files a little later.
is_told_again() {
    local attempt
    for attempt in $(seq 70); do
        ! is_watched || break
        told
    done
    # A directory with many cached listings is watched again soon.
    for attempt in 1 2 3 4 5 6; do told; done
    is_watched
}
# after WHAT COMMAND…: the change shows at once, although listings came from the cache.
after() {
    local what=$1 attempt asked
    shift
    # A delegation holder may see another change attribute of an entry that changed since; such a client gets no listing cached after that.
    exec 7<&-
    remount
    exec 7<"$D/kept/200"
    [ -z "$ENFYS" ] || [ "$VERSION" = 3 ] || [ "$(of_client 10.99.0.2 sum delegations)" -gt 0 ] || fail 'nothing is delegated'
    for attempt in 1 2 3; do
        # Asked only once: a moment later the watch may have ended.
        ! is_told_again || break
        [ "$attempt" != 3 ] || fail 'the directory is not watched: nothing here is told again'
    done
    "$@"
    asked=$(asked)
    told
    [ "$(asked)" -gt "$asked" ] || fail 'the client did not ask'
    host "find \"\$H/kept\" $ENTRIES" >"$L/there"
    diff "$L/there" "$L/told" || fail "$what changed; the listing tells otherwise"
}

after 'its own write' append more "$D/kept/1"
after 'its own chmod' chmod 600 "$D/kept/2"
after 'its own removal' rm "$D/kept/3"
after 'its own renaming' mv "$D/kept/4" "$D/kept/four"
after "another client's write" append more "$OTHER/kept/5"
after "another client's truncation" truncate --size=0 "$OTHER/kept/6"
after "another client's write to a file of two names" append more "$OTHER/elsewhere/seven"
after "another client's renaming over a file" mv "$OTHER/kept/8" "$OTHER/kept/9"
after "another client's file in a directory below" touch "$OTHER/kept/below/new"
after "a local process's write" host 'echo more >>"$H/kept/10"'
after "a local process's mode" host 'chmod 640 "$H/kept/11"'
after "a local process's time" host 'touch --date=2001-02-03 "$H/kept/12"'
after "a local process's removal" host 'rm "$H/kept/13"'
after "a local process's write by another name" host 'echo more >>"$H/elsewhere/seven"'
after "a local process's directory below" host 'mkdir "$H/kept/below/deep"'
after "a local process's link elsewhere" host 'ln "$H/kept/15" "$H/elsewhere/fifteen"'
exec 7<&-
umount /run/other
