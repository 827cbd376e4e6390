# test: (must fail) the server is dead at the end
server stop
