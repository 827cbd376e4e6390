# test: make builds a C program on the mount, and rebuilds only what changed
# versions: 2 3 4.0 4.1 4.2
# exports: sync async
# limit: 600
cd "$D"
mkdir src
{
    echo 'OBJECTS := main.o $(patsubst %,part%.o,1 2 3 4 5)'
    echo 'program: $(OBJECTS) ; $(CC) -o $@ $^'
    echo 'lib.a: $(OBJECTS) ; ar rcs $@ $^'
    echo '%.o: src/%.c src/parts.h ; $(CC) -O1 -Wall -Werror -c -o $@ $<'
} >Makefile
{
    echo '#define BASE 1000'
    for part in 1 2 3 4 5; do echo "int part$part(void);"; done
} >src/parts.h
for part in 1 2 3 4 5; do
    echo "#include \"parts.h\"" >"src/part$part.c"
    echo "int part$part(void) { return BASE + $part; }" >>"src/part$part.c"
done
{
    echo '#include <stdio.h>'
    echo '#include "parts.h"'
    echo 'int main(void) { printf("%d\n", part1() + part2() + part3() + part4() + part5()); return 0; }'
} >src/main.c
make program lib.a
same 5015 "$(./program)"
same 6 "$(ar t lib.a | wc -l)"
[[ "$(make program)" == *'up to date'* ]] || fail 'make builds again what is up to date'
remount
cd "$D"
[[ "$(make program)" == *'up to date'* ]] || fail 'after a remount, make builds again what is up to date'
echo 'int part3(void) { return 0; }' >src/part3.c
rebuilt=$(make program)
same 1 "$(grep -c -- ' -c ' <<<"$rebuilt")" 'objects built after one source changed'
same 4012 "$(./program)"
