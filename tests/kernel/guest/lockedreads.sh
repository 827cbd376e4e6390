# test: files read repeatedly under locks cost one OPEN and one READ each, and no lock reaches the server
# versions: 4.0 4.1 4.2
# Table 1 of "Newer Is Sometimes Better: An Evaluation of NFSv4.1" (2015, section 5.2) with fewer files; docs/performance.md has
# the figures for the paper's number.
files=${LOCKED_READ_FILES:-100} rounds=10
"$PROBE" populate-reads "$D" "$files"
# This client holds write delegations of files that it created; the next mount begins with none.
remount
# In version 4.0 an owner's first open must be confirmed, and gets no delegation (RFC 7530 section 9.1.11).
cat "$D/warm" >/dev/null
reachable
opens=$(operations OPEN) reads=$(operations READ) closes=$(operations CLOSE)
"$PROBE" locked-reads "$D" "$files" "$rounds"
for name in OPEN READ CLOSE ACCESS GETATTR LOCK LOCKU LOOKUP FREE_STATEID; do echo "$name $(operations $name)"; done
same 0 "$(operations LOCK)" 'LOCKs that reached the server'
same 0 "$(operations LOCKU)" 'LOCKUs that reached the server'
same "$files" "$(($(operations OPEN) - opens))" OPENs
same "$files" "$(($(operations READ) - reads))" READs
same "$files" "$(($(operations CLOSE) - closes))" CLOSEs
