# test: (must fail) two trees differ in one nanosecond
"$PROBE" tree "$L/a" 100
cp -a "$L/a" "$D/b"
touch -d '2001-09-09 01:46:40.000000002' "$D/b/plain-0/file-00000"
same_trees "$L/a" "$D/b"
