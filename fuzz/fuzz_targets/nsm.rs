#![cfg_attr(fuzzing, no_main)]
bodies::target!(bodies::nsm_calls);
