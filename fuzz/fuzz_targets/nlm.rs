#![cfg_attr(fuzzing, no_main)]
bodies::target!(bodies::nlm_calls);
