# test: (must fail) a command fails in the middle
true
false
true
