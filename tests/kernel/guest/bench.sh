# test: `enfys bench run` on a mount counts the kernel's requests by operation
# versions: 3 4.1 4.2
# backends: local guest
# takes: 20
# Of another mount the kernel counts no requests.
[ "${MOUNT:-}" != enfys ] || return 0
files=30
[ "$VERSION" = 3 ] && made=CREATE || made=OPEN
before=$(operations WRITE)
"$CLIENT" bench run create --target "$D" --set files=$files --set size=4KiB --threads 2 --rounds 1 --results "$L/results"
# Each file's data are written when it is closed, by one request, and nothing else is written meanwhile.
same $files $(($(operations WRITE) - before)) 'WRITEs that the kernel counted'
"$CLIENT" bench report "$L/results" --json >"$L/json"
"$CLIENT" bench report "$L/results" >"$L/table"
requests() { sed "s/.*\"$1\":{\"requests\":\([0-9]*\),.*/\1/" "$L/json"; }
same $files "$(requests WRITE)" 'WRITEs in the result'
same $files "$(requests $made)" "$made requests in the result"
[ "$VERSION" = 3 ] || same $files "$(requests CLOSE)" 'CLOSE requests in the result'
grep -q "requests/operation .*WRITE 1.00" "$L/table" || fail "the table: $(cat "$L/table")"
grep -q "mount .*vers=$VERSION" "$L/table" || fail "the table has no options of the mount: $(cat "$L/table")"
