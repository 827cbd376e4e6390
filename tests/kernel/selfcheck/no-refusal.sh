# test: (must fail) what should be refused succeeds
refused 'No such file or directory' ls "$D"
