# test: (must fail) a script beside the server fails
host 'false'
