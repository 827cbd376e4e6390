# test: cthon04 (Connectathon's basic, general, special and lock tests), built in the directory that --suite names
# versions: 2 3 4.0 4.1 4.2
# limit: 600
cd "$SUITE_DIR"
# `-t` is the longer form of each test.
NFSTESTDIR=$D/cthon ./runtests -a -t
