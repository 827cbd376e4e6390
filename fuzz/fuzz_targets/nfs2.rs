#![cfg_attr(fuzzing, no_main)]
bodies::target!(bodies::nfs2_calls);
