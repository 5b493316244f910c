#![no_main]
#![allow(missing_docs, reason = "the macro's own items")]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| delayline_fuzz::sqs(data));
