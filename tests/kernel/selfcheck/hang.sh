# test: (must fail) a program hangs
# limit: 2
sleep 1000
