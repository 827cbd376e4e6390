# test: files renamed, replaced and removed while they are open go on as they were
# versions: 3 4.0 4.1 4.2
"$PROBE" open-files "$D"
remount
mkdir "$D/again"
"$PROBE" open-files "$D/again"
