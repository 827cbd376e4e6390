# test: files renamed, replaced and removed while they are open go on as they were
"$PROBE" open-files "$D"
remount
mkdir "$D/again"
"$PROBE" open-files "$D/again"
