#![cfg_attr(fuzzing, no_main)]
bodies::target!(bodies::rquota_calls);
