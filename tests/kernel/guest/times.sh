# test: times are kept to the nanosecond, and change by themselves when they must
# versions: 3 4.0 4.1 4.2
"$PROBE" times "$D"
touch -d '2033-05-18 03:33:20.123456789 UTC' "$D/file"
remount
same '2000000000.123456789' "$(stat -c %.9Y "$D/file")"
if on_host; then same '2000000000.123456789' "$(host 'stat -c %.9Y "$H/file"')" "on the server's disk"; fi
# The server's and the client's current times are close: this is one machine.
touch "$D/now"
age=$(($(date +%s) - $(stat -c %Y "$D/now")))
[ "${age#-}" -le 60 ] || fail "a file made now is $age s old"
