#![no_main]
libfuzzer_sys::fuzz_target!(|d: &str| { let _ = bytepath::record::unit::parse_bytes(d); });
