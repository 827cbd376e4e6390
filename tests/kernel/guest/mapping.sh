# test: shared mappings, with reads and writes beside them
# versions: 2 3 4.0 4.1 4.2
"$PROBE" mapping "$D/file"
sum=$(sha256sum <"$D/file")
remount
same "$sum" "$(sha256sum <"$D/file")"
if on_host; then same "$sum" "$(host 'sha256sum <"$H/file"')" "on the server's disk"; fi
# A program runs from the mount, mapped by the kernel.
cp /usr/bin/od "$D/program"
remount
same ' 61 62' "$(printf ab | "$D/program" -An -tx1)"
