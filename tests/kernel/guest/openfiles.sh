# test: open files stay usable when they are renamed, replaced or removed
# versions: 2 3 4.0 4.1 4.2
"$PROBE" open-files "$D"
remount
mkdir "$D/again"
"$PROBE" open-files "$D/again"
