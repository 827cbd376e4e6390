# test: two processes write to one SQLite database; nothing is lost, and it is intact
# versions: 2 3 4.0 4.1 4.2
# exports: sync async
db=$D/test.db
sqlite3 "$db" 'PRAGMA journal_mode=DELETE; CREATE TABLE t (writer INTEGER, number INTEGER, text TEXT, UNIQUE (writer, number));'
write() {
    for ((number = 0; number < 60; number++)); do
        echo "INSERT INTO t VALUES ($1, $number, hex(randomblob(500)));"
    done | sqlite3 -bail -cmd '.timeout 60000' "$db"
}
write 1 & first=$!
write 2 & second=$!
# A concurrent reader must never see a broken page.
for _ in 1 2 3 4 5; do same ok "$(sqlite3 -cmd '.timeout 60000' "$db" 'PRAGMA quick_check;')"; done
wait "$first" || fail 'writer 1 failed'
wait "$second" || fail 'writer 2 failed'
same ok "$(sqlite3 "$db" 'PRAGMA integrity_check;')"
same 120 "$(sqlite3 "$db" 'SELECT count(*) FROM t;')"
remount
same ok "$(sqlite3 "$db" 'PRAGMA integrity_check;')"
same '1|60|1770
2|60|1770' "$(sqlite3 "$db" 'SELECT writer, count(*), sum(number) FROM t GROUP BY writer ORDER BY writer;')"
[ ! -e "$db-journal" ] || fail 'a journal is left'
