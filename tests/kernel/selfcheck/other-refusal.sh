# test: (must fail) what should be refused is refused for another reason
refused 'Permission denied' ls "$D/nothing"
