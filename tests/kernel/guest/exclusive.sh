# test: of several programs that create one name with O_EXCL, exactly one succeeds; a directory and a link too
# versions: 3 4.0 4.1 4.2
# exports: sync async
mkdir "$D/one" "$D/two"
"$PROBE" exclusive "$D/one" "$D/one" 60
mount_other
"$PROBE" exclusive "$D/two" "/run/other/$TEST/two" 60
refused 'File exists' dd if=/dev/null of="$D/one/name-0" conv=excl
refused 'File exists' mkdir "$D/one"
refused 'File exists' ln "$D/one/name-0" "$D/one/name-1"
refused 'File exists' ln -s target "$D/one/name-1"
# A removed name can be created again at once, on the other mount.
rm "$D/one/name-0"
echo again | dd of="/run/other/$TEST/one/name-0" conv=excl status=none
umount /run/other
remount
same again "$(cat "$D/one/name-0")"
# The storage of the verifier of an exclusive creation must not show in the file's times or mode.
before=$(date +%s)
(umask 027; dd if=/dev/null of="$D/plain" conv=excl status=none)
remount
same 640 "$(stat -c %a "$D/plain")"
now=$(date +%s) mtime=$(stat -c %Y "$D/plain") atime=$(stat -c %X "$D/plain")
[ "$mtime" -ge "$((before - 60))" ] && [ "$mtime" -le "$((now + 60))" ] || fail "mtime $mtime is not about $now"
[ "$atime" -ge "$((before - 60))" ] && [ "$atime" -le "$((now + 60))" ] || fail "atime $atime is not about $now"
