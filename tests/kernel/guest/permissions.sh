# test: permissions are the server's: owner, group, 16 groups of 20, sticky and set-group-id directories
# versions: 2 3 4.0 4.1 4.2
chmod 755 "$D"
user=1234 other=1235 groups=$(seq -s, 2001 2020)
u() { as_user "$user" 1234 "$groups" "$@"; }
o() { as_user "$other" 1235 '' "$@"; }
deny='Permission denied'
for gid in $(seq 2001 2020); do
    echo "$gid" >"$D/group-$gid"
    chown "0:$gid" "$D/group-$gid"
    chmod 640 "$D/group-$gid"
done
for mode in 600 644 000; do echo text >"$D/root-$mode"; chmod "$mode" "$D/root-$mode"; done
install -d -m 1777 "$D/sticky"; install -d -m 2775 -g 2005 "$D/setgid"; install -d -m 711 "$D/closed"
echo inside >"$D/closed/file"; install -d -o "$user" -g "$user" -m 700 "$D/own"
install -m 711 /bin/true "$D/execute-only"
remount
cd "$D"

# RFC 5531 §14: AUTH_SYS carries at most 16 groups besides the first. Linux sends the 16 with the lowest numbers,
# so the other four do not count. (The client's own checks ask the server, in v3 and v4.1 by ACCESS.)
for gid in $(seq 2001 2016); do same "$gid" "$(u cat "group-$gid")" "member of $gid"; done
for gid in $(seq 2017 2020); do refused "$deny" u cat "group-$gid"; done
for gid in 2001 2016; do refused "$deny" u bash -c "echo x >>group-$gid"; refused "$deny" o cat "group-$gid"; done

same text "$(u cat root-644)"
refused "$deny" u cat root-600
refused "$deny" u bash -c 'echo x >>root-644'
refused 'Operation not permitted' u chmod 777 root-644
refused 'Operation not permitted' u chown "$user" root-644
refused 'Operation not permitted' u touch -h -d 2001-01-01 root-644
same text "$(cat root-000)" 'root reads everything'
refused "$deny" u ls closed
same inside "$(u cat closed/file)"
refused "$deny" u touch new
refused "$deny" o ls own
# RFC 1813 §4.4: a user who may execute a file may read it, because executing needs reading.
u ./execute-only || fail 'a program that is only executable does not run'
refused "$deny" u cat execute-only

# The owner of an open file may continue after a chmod (RFC 1813 §4.4, and an open in v4).
u bash -c 'exec 3>own/file; chmod 000 own/file; echo written >&3; exec 3>&-' || fail 'a write after chmod 000 failed'
refused "$deny" u cat own/file
same written "$(cat own/file)"
echo readonly >"$L/readonly"; chmod 444 "$L/readonly"; chmod 755 "$L"
u cp -p "$L/readonly" own/readonly || fail 'a read-only file cannot be copied'
same "444 $user $user readonly" "$(stat -c '%a %u %g' own/readonly) $(cat own/readonly)"

u touch sticky/file
refused 'Operation not permitted' o rm -f sticky/file
refused 'Operation not permitted' o mv sticky/file sticky/moved
u mv sticky/file sticky/moved
u rm sticky/moved
u bash -c 'umask 002; touch setgid/file; mkdir setgid/directory'
same '1234:2005 664' "$(stat -c '%u:%g %a' setgid/file)" 'a file in a set-group-id directory'
same '1234:2005 2775' "$(stat -c '%u:%g %a' setgid/directory)" 'a directory in a set-group-id directory'
u bash -c 'umask 077; touch own/masked'
same 600 "$(stat -c %a own/masked)"
u chgrp 2003 own/masked
refused 'Operation not permitted' u chgrp 2999 own/masked
same 1234:2003 "$(stat -c %u:%g own/masked)"

# A write by another user, and a change of owner, clear set-user-id.
install -m 6777 /bin/true own/suid; chmod 755 own
o bash -c 'echo x >>own/suid'
# If the file is delegated, closing it does not wait for the write, and neither does a request for the mode only.
sync
same 777 "$(stat -c %a own/suid)" 'mode after a write by another user'
chmod 6755 own/suid; chown "$other:$other" own/suid
same 755 "$(stat -c %a own/suid)" 'mode after chown'
