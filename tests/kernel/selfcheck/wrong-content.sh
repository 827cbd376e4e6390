# test: (must fail) a file is not what it should be
echo one >"$D/file"
echo two >"$L/file"
same_file "$L/file" "$D/file"
